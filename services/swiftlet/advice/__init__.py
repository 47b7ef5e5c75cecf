"""What a store needs for a load, and what is wrong with one that there is: pure decisions, with the standard library.

Unit costs (`costs`), loads (`load`, `sizes`) and hardware (`hardware`) as values, what a load costs (`demand`), which
nodes and pods it takes (`sizing`, `arrangements`) and the manifests of these (`manifests`), clusters as far as advice
depends on them (`cluster`), their pitfalls (`pitfalls`), loads read from metrics (`observed`) and the text of it all
(`text`) belong here. Reading files, clusters and clocks doesn't: `swiftlet advise` and `kubectl swiftlet advise` do.
The second has neither Pydantic nor YAML, so nothing here may import them.
"""
