"""HTTP/JSON for everybody: start work by key, watch it, signal it, cancel it. Decides nothing by itself."""
