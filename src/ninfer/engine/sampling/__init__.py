"""One token from one row of logits, as a function of logits, counts, seed and position alone."""
