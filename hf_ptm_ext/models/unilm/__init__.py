"""UniLM: one encoder that understands and generates, by four attention modes."""
