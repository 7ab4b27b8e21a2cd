-- Which transaction told that a run has ended, and the snapshot in which the last claim added up what had: what was not over then is still to come,
-- however late it commits and whatever the clock said.
alter table hawser.freed add column xid xid8 not null default pg_current_xact_id();
create index freed_seen on hawser.freed (meter, xid);
drop index hawser.freed_meter;
alter table hawser.meter add column seen text;
