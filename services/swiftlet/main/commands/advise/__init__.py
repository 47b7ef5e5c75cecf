"""`swiftlet advise`: reads workloads, results, unit costs, clusters and metrics, has `swiftlet.advice` decide, prints.

The command line (`command`), files of users (`workload_file`, `cluster_file`), what a result of `swiftlet bench`
says (`recorded`), metrics of running services (`scraping`), and measuring unit costs (`measuring`) belong here.
"""
