"""Sections about many objects in one request, and about containers as web sites."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from swiftlet.settings.base import Section

_GIB = 1 << 30


class BulkSection(Section):
    """Bulk requests: archives that are unpacked into objects, and lists of objects to delete."""

    max_files_per_extraction: int = Field(
        default=1_000_000, ge=1, description="Files, directories and other entries of one archive."
    )
    max_containers_per_extraction: int = Field(
        default=10_000, ge=0, description="Containers that one archive may create."
    )
    max_failed_extractions: int = Field(
        default=1000, ge=1, description="Number of files that could not be stored after which an extraction ends."
    )
    max_extracted_bytes: int = Field(default=1024 * _GIB, ge=1, description="Bytes of an archive after decompression.")
    max_compression_ratio: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)] = Field(
        default=250.0,
        description="How many times larger than its compressed size an archive may become. The first 64 MiB are "
        "not counted, so that short archives of zeros are accepted; after them a decompression bomb is stopped "
        "soon.",
    )
    max_deletes_per_request: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Names in one request to delete."
    )
    max_failed_deletes: int = Field(
        default=1000, ge=1, description="Number of names that could not be deleted after which the request ends."
    )
    delete_concurrency: int = Field(default=2, ge=1, le=1000, description="Names that one request deletes at a time.")


class StaticWebSection(Section):
    """Static web: containers that requests without a token read as web sites."""

    enabled: bool = Field(
        default=True, description="Whether index pages, error pages and listings in HTML are served where set."
    )
