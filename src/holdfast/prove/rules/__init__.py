"""What must hold in every world: rules about calls, ends, receipts and journals, and the judge that asks them all."""
