"""`holdfast prove`: crash, pause and cancel a workflow at every boundary of a run, and compare with the clean one."""
