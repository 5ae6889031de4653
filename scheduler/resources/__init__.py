"""What requests compete for: workers, slots, KV pages, the prefix cache, and placement on them."""
