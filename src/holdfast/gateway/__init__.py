"""HTTP/JSON for any language: start work by key, watch it, signal it, cancel it. Decides nothing by itself."""
