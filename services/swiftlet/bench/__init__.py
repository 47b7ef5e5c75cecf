"""Measuring any store that speaks the Swift API: scenarios, runs of the native load generator, results, comparisons.

Scenarios and those that ship (`scenario`, `catalogue`, `shipped/`), what drives the generator (`runner`), what is seen
of the processes under test (`processes`), results as values (`results`, `times`, `figures`), as a table and a page
(`table`, `page`, `plots`), and their comparison (`comparison`, `verdicts`) belong here. Logging in and options of the
command line are those of `main.commands.bench`; what is done per request is native (`native/crates/load`). Nothing here
knows the services.
"""
