-- Nothing looks dead letters up by the time at which they failed: a workspace's are found by dead_letters_request, and
-- lists are in the order of the ids.
drop index dead_letters_workspace;
