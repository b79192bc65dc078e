"""K-Adapter: knowledge in networks beside a frozen encoder."""
