"""IB-BERT: MobileBERT's teacher, a BERT-large with inverted bottlenecks."""
