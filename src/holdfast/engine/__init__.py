"""Thin shells round the kernel: load → decide → commit → emit. No policy lives here."""
