-- Where a group's first waiting job stands among those that are due at the same instant: a call that brings many gives all of them one.
-- And whether jobs of the group may wait that are not fresh; where none does, claims look for fresh ones only.
alter table hawser.group_turn add column begin_seq bigint not null default 0, add column waited boolean not null default true;
alter table hawser.arrived add column waited boolean not null default true;
