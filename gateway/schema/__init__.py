"""Request fields: names, types, ranges and defaults, and the OpenAPI document made from them."""
