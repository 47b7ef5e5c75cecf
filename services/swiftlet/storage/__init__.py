"""Storage servers: aiohttp shells around store and listing."""
