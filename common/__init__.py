"""What two or more rooms need: messages, transport, configuration, metrics, logging, clock and checkpoint metadata."""
