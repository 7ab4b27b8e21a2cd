-- KEYS[1], ARGV[1]: as in start.lua.
-- Returns: nothing; a part of scripts that obey limits, or count what they count.
-- Says what is limited, and counts the runs of it.
-- `rules` has for each limited queue and task what code declares and what an operator chose. `taskruns` has how many jobs of a limited task
-- run, and `groupruns` how many of a group of a task with a limit per group; `s` has it for queues.
local any_limit = call('EXISTS', P .. 'rules') == 1
local rules = {}

-- What is said of a queue or task, and what of it is in force; false when that is nothing.
local function rule(kind, name)
  if not any_limit then return false end
  local field = kind .. '|' .. name
  local r = rules[field]
  if r == nil then
    local v = call('HGET', P .. 'rules', field)
    r = v and cmsgpack.unpack(v) or false
    if r then r.force = r.chosen or r.declared end
    rules[field] = r
  end
  return r
end

-- What a limit per group says to a task; nil when there is none.
local function group_rule(task)
  local r = rule('task', task)
  return r and r.force and r.force.per_group and r.force or nil
end

-- Runs of a task begin or end. Says whether a limit counts them.
local function count_runs(l, by, group)
  if not any_limit then return false end
  if rule('task', l.t) then
    add('taskruns', l.t, by)
    if group and group_rule(l.t) then add('groupruns', l.t .. '|' .. group, by) end
    return true
  end
  return rule('queue', l.q) and true
end
