"""What is found out before a service's processes start."""

from __future__ import annotations

import pytest

from swiftlet.main.services.serving import serve_app
from swiftlet.web.serve import ServeOptions
from swiftlet.web.sockets import PortInUse, listen


def test_a_management_port_in_use_ends_the_service_before_its_workers_start() -> None:
    other = listen("127.0.0.1", 0)
    options = ServeOptions(drain_s=1.0, management=("127.0.0.1", other.getsockname()[1]))
    with pytest.raises(PortInUse, match=str(other.getsockname()[1])):
        serve_app(lambda: pytest.fail("a worker started"), "127.0.0.1", 0, options, workers=2)
    other.close()
