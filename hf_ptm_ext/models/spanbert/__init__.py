"""SpanBERT: BERT pre-trained on contiguous masked spans with a span boundary objective."""
