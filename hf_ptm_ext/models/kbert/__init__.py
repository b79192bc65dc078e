"""K-BERT: knowledge injected into BERT's input as branches, which a visible matrix keeps to their own words."""
