-- The row of a run.
return row_of(run)
