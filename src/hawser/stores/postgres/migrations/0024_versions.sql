-- While any transaction holds an old snapshot, each version of a row has to be stepped over by those who look for it. So rows of groups that are
-- rewritten all the time are found by the number of their version, the newest first.
alter table hawser.group_turn add column version bigint not null default 0;
create unique index group_turn_version on hawser.group_turn (lane, group_name, version);
alter table hawser.group_turn drop constraint group_turn_pkey;

-- A group that has nothing waiting keeps its row for a while: one that is gone could not be told from one that was never there without
-- stepping over all that it ever was. `begin_at` is then the time since when. Pruning forgets it.
alter table hawser.group_turn add column idle boolean not null default false;
create index group_turn_idle on hawser.group_turn (lane, begin_at) where idle;

-- Here every 16th change is a version: in between, rows are changed in place.
alter table hawser.group_meter add column changes bigint not null default 0, add column version bigint not null default 0;
create unique index group_meter_version on hawser.group_meter (limit_id, group_name, version);
alter table hawser.group_meter drop constraint group_meter_pkey;
alter table hawser.ungrouped_turn add column changes bigint not null default 0, add column version bigint not null default 0;
create unique index ungrouped_turn_version on hawser.ungrouped_turn (queue, priority, version);
alter table hawser.ungrouped_turn drop constraint ungrouped_turn_pkey;

-- Which transaction told that a job has come to a group. A claim looks only at those that were not over when the last claim of its
-- session looked: the others are gone, but would have to be stepped over.
alter table hawser.arrived add column xid xid8 not null default pg_current_xact_id();
create index arrived_seen on hawser.arrived (lane, xid);
drop index hawser.arrived_lane;
