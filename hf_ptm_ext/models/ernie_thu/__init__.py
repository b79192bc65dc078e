"""ERNIE-THU: knowledge-graph entities fused into the encoder (Zhang et al., ACL 2019)."""
