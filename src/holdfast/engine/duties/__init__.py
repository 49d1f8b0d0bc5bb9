"""What has to be done now and then, some of it by one process for all."""
