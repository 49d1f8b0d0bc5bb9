"""What the engine needs from the outside, as Protocols. `assembly` alone names the adapters."""
