"""One composition root per service, and the parts that only roots of services share."""
