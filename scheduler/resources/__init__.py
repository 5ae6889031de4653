"""Resources of one worker: slots, KV pages, the prefix cache and learned costs.

Nothing here knows a request, a policy or a message.
"""
