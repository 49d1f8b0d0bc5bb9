"""The verbs behind `Holdfast`, the gateway and the command line."""
