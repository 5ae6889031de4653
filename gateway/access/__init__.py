"""Access control: API keys, the accounts behind them, and authentication of requests."""
