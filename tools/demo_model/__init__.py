"""Everything that makes the embedded demonstration model: data, tokenizer, training, evaluation, export."""
