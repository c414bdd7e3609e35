-- Number of objects of the request that were accepted. If the queue is lost, `GET /requests/{request_id}` can then say how
-- many objects of a request with refused objects are unknown.
alter table refused_requests add column accepted integer not null default 0;
