"""The data plane: forwards calls byte for byte and answers for itself where it must."""
