"""The model: its shape, its weights, and pure functions of one layer's weights. No plans, no memory ledger."""
