"""What runs: rings and hubs on the publisher's side, sessions and leases on the subscriber's."""
