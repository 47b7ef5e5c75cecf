"""For all tests: properties are held to their sentences, not to a time; machines are busy with other things."""

from hypothesis import settings

settings.register_profile("swiftlet", deadline=None)
settings.load_profile("swiftlet")
