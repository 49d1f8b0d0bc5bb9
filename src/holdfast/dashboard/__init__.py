"""The dashboard: pages for people, rendered on the server, with a little JavaScript that keeps them fresh."""
