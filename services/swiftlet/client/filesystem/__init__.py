"""A store as a file system for fsspec: `swiftlet://CONTAINER/PATH`, for pandas, pyarrow, dask, zarr and many others.

Containers are the folders of the root; below them folders exist as long as a name begins with theirs. Nothing is
cached, so what others write is seen. A file that is being written appears when it is closed, and not at all when the
block that writes it fails; one that is being read stays one version, or the read fails. Instances may be used after a
fork (a DataLoader's workers) and can be pickled.

Options are the variables that the environment has for other programs, in lower case (`st_auth`, `st_user`, `st_key`,
`os_auth_url`, ..., `swiftlet_credentials`), and `client_options` for `swiftlet.client.Options`; without any, the
environment itself says who asks.
"""

from __future__ import annotations

from swiftlet.client.filesystem.files import SwiftletFile as SwiftletFile
from swiftlet.client.filesystem.store import SwiftletFileSystem as SwiftletFileSystem
