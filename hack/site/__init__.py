"""The documentation as a site: what MkDocs does not do by itself, called by it as hooks (`mkdocs.yml`).

`pages` knows which files of the repository are pages and rewrites links between them, `diagrams` draws Mermaid as SVG,
`hooks` is what MkDocs calls. The site asks no other host for anything.
"""
