"""Sessions: loaders push the batches of steps, ranks pull their shards of them."""
