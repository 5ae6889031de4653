"""Code that two or more rooms share: messages, transport, configuration, metrics, logging and checkpoint metadata.

Belongs here: what a second room needs as it is. Not here: anything that knows what one room does with it.
"""
