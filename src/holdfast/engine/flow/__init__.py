"""What stands before effects, as one replica sees it: breakers and limits that all replicas share."""
