"""What tests share: waiting for conditions, scratch databases."""
