"""Several tasks on one encoder: MT-DNN's model, its mixing of batches, its options."""
