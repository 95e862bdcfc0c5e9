-- Decides a list of requests. Each request is a list of charges, of which all are taken or none.
-- Each kernel is a transcription of a Go file, which it names. Change both together.
--
-- KEYS     the states, each once: first the short ones, then those of exact logs and permits
-- ARGV[1]  packed, little endian:
--            u16 number of short keys, u16 number of plans
--            for each plan: u8 kernel (as in kernel.Kind: 0 meter, 1 window, 2 stamp log, 3 count
--              log, 4 exact log, 5 lock, 6 in flight, 7 distinct), and six f64: tick, capacity, the
--              most units that a state keeps, grid, and two that depend on the kernel:
--                meter     unit, drain
--                window    span, mode: 0 fixed, 1 sliding; for months, 1 + the day on which they begin
--                log       span, 0
--                exact     span, width: the bytes of an entry
--                in flight, distinct  span, 0
--              The six numbers of a lock are the length of the first penalty, the length of the
--              longest, 0, the time from the end of a penalty until penalties are forgotten, the
--              factor, and 0.
--            for each charge: u16 key and u16 plan, both counted from 1, u8 flags, f64 cost, and then
--                flag 32   f64 time
--                flag 8    u16 number of coalesced requests
--                in flight, distinct  8 bytes: the number of the permit. The cost is -2 to give
--                          back all permits, and otherwise from -1 to 2.
--                lock      u16 position of the charge that makes the request a repeat if it does
--                          not fit, or 0; u16 number of charges that are offences if they do not
--                          fit; and for each of these, u16 position. The position of a charge is
--                          that of its first number among the numbers of the reply to the request,
--                          counted from 1.
--            The flags are a sum of
--                1   shadow: the charge does not refuse its request
--                2   the last charge of its request
--                4   look: take nothing, even if all charges fit
--                8   the first charge of a group of equal requests, coalesced into one (only of meters
--                    and windows)
--                16  a later request has this key, too
--                32  a cost below 0 counts as 0 from the given time on
--                64  the cost is owed (always with 1, never with 8)
-- ARGV[2]  only for tests: the time in microseconds. If it is given, keys get no expiry.
--
-- The reply is packed f64: the time, and for each charge
--                meter   level
--                window  count, number, previous count
--                log     count, newest tick, wait, and the tick at which the oldest unit expires if
--                        the charge does not fit, or else 0
--                lock    number of penalties, end of the last, time when they are forgotten
--                in flight  number of permits held
--                distinct   number of values, time of the last use of any value, time when a new
--                           value fits or the first value expires, time when this value would have
--                           expired before, or 0
-- If a charge does not fit, its first number n is replaced by -1-n. For a cost that is owed, one more
-- number follows: the units that were not taken. For coalesced requests, the first number is the one
-- from before the first of them, and one more number follows: how often the cost fits, at most the
-- number of requests.
--
-- A key can contain a value that this script did not write. Then its request is not decided. The
-- first number of the charge is -2^53 if the value was a string, which the script has deleted, or
-- -2^54 if the value has another type. The script leaves such a value alone, because another program
-- may need it. No string may make the script fail, because it has already taken earlier requests.
--
-- States:
--   meter   "t" or "t:rem". In ticks of a microsecond, t*drain + rem = tick*drain + level. Other
--           ticks are converted: see meter.go: converted.
--   window  "number:count" or "number:count:previous"
--   stamps  f64 base, f64 low, and for each unit, in order, a u16: its tick - base, modulo 2^16.
--           The ticks of all units are in [base+low, base+low+2^16).
--   counts  f64 tick of the newest unit, f64 sum, and for each of the 33 ticks up to that tick, u32
--           units
--   exact   like stamps, with entries of width bytes
--   lock    "end:count:forgotten"
--   in flight, distinct  a sorted set: the number of each permit, with the time when it expires
--
-- A key expires when its state has become empty. For a meter or a log, this time is rounded up to
-- the grid, so that most writes leave the expiry unchanged. A sorted set expires a span after its last
-- permit. The state of a window or log stays longer if more than half of the limit is used, so that
-- volatile-ttl evicts it after the others: a window by its grid, a log by its span. (A fuller bucket
-- drains later in any case.) The grid of a meter depends on its burst, which can change. So a minus
-- before t shows that the grid is the coarse one.
--
-- All numbers are integers below 2^53, for which a - a % b and a / b are exact. A product that is not
-- exact is only compared: it is too large with or without the rounding.
--
-- Most calls have a single charge. They do without the tables that several charges need.

local call, pcall = redis.call, redis.pcall
local struct_unpack, struct_pack, format, sub = struct.unpack, struct.pack, string.format, string.sub
local KEYS, arg, now = KEYS, ARGV[1], ARGV[2]
local expires = not now
if expires then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = tonumber(now)
end

-- The plan of the current charge. unit_or_span is the unit of a meter, or the span of another
-- plan. drain_or_mode is the drain of a meter, the mode of a window, or the width of an exact log.
local short_keys, plan_count, kernel, tick_length, capacity, most, grid, unit_or_span, drain_or_mode, pos = struct_unpack('<HHBdddddd', arg)
local plan, tick = 1, (now - now % tick_length) / tick_length
local arg_length = #arg
pos = 5 + 49 * plan_count
local single = arg_length - pos < 20 -- there is only one charge

-- The short states. Each is false, a string, or the number t of a meter without rem. '!' is not
-- a valid state: it stands for a value of another type.
local state, states
if short_keys == 0 then
  states = {}
elseif single then
  state = pcall('GET', KEYS[1])
  if state and state.err then state = sub(state.err, 1, 9) == 'WRONGTYPE' and '!' or call('GET', KEYS[1]) end
else
  states = call('MGET', unpack(KEYS, 1, short_keys))
  for key_index = 1, short_keys do
    if not states[key_index] then -- missing, or of another type, which MGET does not tell apart
      local value = pcall('GET', KEYS[key_index])
      states[key_index] = value and value.err and (sub(value.err, 1, 9) == 'WRONGTYPE' and '!' or call('GET', KEYS[key_index])) or value
    end
  end
end
-- calendar.go: monthEnd, daysBefore. It is set when a call first needs it.
local month_end
-- For each key whose new state will be written by a later request: the expiry of the new state,
-- and the expiry of the stored state.
local deferred_expiry, stored_expiry

-- The current exact log. If it is too long to be read for every decision, text is nil, the log is
-- searched and appended to in place, and its value is the number of entries.
local key, text, base, low, width, spec, size
local tick_of, keep_from
if short_keys < #KEYS then
  -- Returns the tick of entry i, counted from 0.
  tick_of = function(i)
    local from, entry = 16 + i * width
    if text then
      entry = struct_unpack(spec, text, from + 1)
    else
      entry = struct_unpack(spec, call('GETRANGE', key, format('%d', from), format('%d', from + width - 1)))
    end
    return base + low + (entry - low) % size
  end

  -- Drops the entries before the entry first. If the log is a long one, this reads the others.
  keep_from = function(first)
    local from = 16 + first * width
    low = tick_of(first) - base
    text = (text and sub(text, from + 1)) or call('GETRANGE', key, format('%d', from), '-1')
    text = struct_pack('<dd', base, low) .. text
  end
end

local out, out_length
if not single then out, out_length, deferred_expiry, stored_expiry = {now, 0, 0, 0}, 1, {}, {} end

while pos <= arg_length do
  local request, before, copies, take, again, granted = pos, out_length, 1
  repeat
    local admitted, fewest_fits = true, 65536
    pos, out_length = request, before
    repeat
      local key_index, plan_index, flags, cost
      key_index, plan_index, flags, cost, pos = struct_unpack('<HHBd', arg, pos)
      if plan_index ~= plan then
        plan = plan_index
        kernel, tick_length, capacity, most, grid, unit_or_span, drain_or_mode = struct_unpack('<Bdddddd', arg, 49 * plan_index - 44)
        tick = (now - now % tick_length) / tick_length
      end
      local defer, owe = false, false
      if flags >= 16 then
        if flags >= 64 then owe, flags = true, flags - 64 end
        defer = flags >= 16
        if flags >= 32 then -- store.go: CostAt
          local ends
          ends, pos = struct_unpack('<d', arg, pos)
          if now >= ends and cost < 0 then cost = 0 end
          defer, flags = flags >= 48, flags - (flags >= 48 and 48 or 32)
        elseif defer then
          flags = flags - 16
        end
      end
      if flags >= 8 then
        flags = flags - 8
        copies, pos = struct_unpack('<H', arg, pos)
      end
      local look = flags >= 4
      if look then flags = flags - 4 end
      -- A request with one charge is decided and taken in one round. For other requests, the
      -- first round checks whether all charges fit, and the second round takes them.
      if take == nil then take = flags >= 2 and not look end
      local fits, foreign, fit_count, value = true, false, 1, state
      if states then value = states[key_index] end
      -- A kernel charges cost at tick to value, the state under the key (false if it is
      -- missing). It takes units only if take is true, and for at most granted of the coalesced
      -- requests. It sets fits and the replies, or foreign if value is not a valid state. If the
      -- state changes, it also sets value, expiry, and expiry_before, the expiry of the stored
      -- state. If both states are numbers, it sets increment, the number to add to the stored one.
      local expiry, expiry_before, increment, reply1, reply2, reply3, reply4, reply5

      if kernel == 0 then -- meter.go: stepMeter, level, converted; state.go: Owe
        local t, rem, was_coarse = value, 0, false
        -- For ticks longer than a microsecond, these are rate.drain and part of kernel.Plan: a
        -- level of 1 drains in part/fine microseconds.
        local fine, part
        if value then
          if drain_or_mode > 1 then
            t, rem = string.match(value, '^(-?%d+):?(%d*)$')
            rem = tonumber(rem) or 0
          end
          t = tonumber(t)
          foreign = not t or t % 1 ~= 0
          if foreign then
            t = nil
          elseif t < 0 then
            t, was_coarse = -t, true
          end
        end
        if tick_length > 1 then
          local divisor, rest = drain_or_mode, tick_length
          while rest > 0 do divisor, rest = rest, divisor % rest end
          fine, part = drain_or_mode / divisor, tick_length / divisor
          if t then
            rest = t % tick_length
            t, rem = (t - rest) / tick_length, rest * fine + rem
            rem = (rem + -rem % part) / part
          end
        end
        local level, stepped, vague, size = 0, false, false, capacity * unit_or_span
        if t and t >= tick then
          level = (t - tick) * drain_or_mode + rem
          if level > size then
            local full = most * unit_or_span
            if full > 2251799813685248 then
              if level > 4503599627370496 then level, vague = 4503599627370496, true end
            elseif level > full then
              level, stepped = full, true
            end
          end
        end
        local new, units = level, cost * unit_or_span
        if owe then reply2 = 0 end
        if cost > 0 then
          if level + units > size then
            fits, fit_count = false, 0
            if owe and take then
              local full = most * unit_or_span
              if full > 2251799813685248 then full = 4503599627370496 end
              local room = full - level
              local whole = (room - room % unit_or_span) / unit_or_span
              if cost > whole then
                new, reply2 = full, cost - whole
              else
                new = level + units
              end
            end
          elseif copies > 1 then
            local room = size - level
            fit_count = (room - room % units) / units
            if fit_count > copies then fit_count = copies end
            if take then
              new = level + (granted and granted < fit_count and granted or fit_count) * units
            end
          elseif take then
            new = level + units
          end
        elseif take and cost < 0 and not (vague and cost > -4503599627370496) then
          new = level + units
          if new < 0 then new = 0 end
        end
        reply1 = fits and new or -1 - new
        if copies > 1 then reply1, reply2 = level, fit_count end
        if not foreign and (new ~= level or stepped) then
          local coarse_now, old = grid > 1, t
          if t and was_coarse == coarse_now and not fine then
            if rem > 0 then t = t + 1 end
            expiry_before = t + -t % grid
          end
          rem = new % drain_or_mode
          t = tick + (new - rem) / drain_or_mode
          if fine then
            local parts = rem * part
            rem = parts % fine
            t = t * tick_length + (parts - rem) / fine
          end
          if new == 0 then
            value = false
          elseif drain_or_mode > 1 then
            value = format(coarse_now and '-%d:%d' or '%d:%d', t, rem)
          else
            value = coarse_now and -t or t
            if expiry_before then increment = coarse_now and old - t or t - old end
          end
          if rem > 0 then t = t + 1 end
          if fine then t = t + -t % tick_length end
          expiry = t + -t % grid
        end

      elseif kernel == 1 then -- window.go: stepWindow, rolled, windowRoom
        local window_tick, day = tick, drain_or_mode - 1
        if day > 0 then -- calendar.go: month
          if not month_end then
            local function days_before(n)
              n = n + 23638
              local month = n % 12
              local year, days = (n - month) / 12, 153 * month + 2
              return 365 * year + (year - year % 4) / 4 - (year - year % 100) / 100 + (year - year % 400) / 400 + (days - days % 5) / 5 - 719468
            end
            month_end = function(n, day)
              local first = days_before(n)
              if day > 28 then
                local length = days_before(n + 1) - first
                if day > length then day = length end
              end
              return (first + day - 1) * 86400000000
            end
          end
          local months = ((now - now % 86400000000) / 86400000000 + 146096 - day) * 4800
          window_tick = (months - months % 146097) / 146097 - 4799
          while month_end(window_tick, day) <= now do window_tick = window_tick + 1 end
        end
        local current, moved = (window_tick - window_tick % unit_or_span) / unit_or_span, false
        local number, count, prev, count_before = current, 0, 0, 0
        if value then
          number, count, prev = string.match(value, '^(%d+):(%d+):?(%d*)$')
          number, count, prev = tonumber(number), tonumber(count), tonumber(prev) or 0
          foreign = not number or number + count + prev >= 9007199254740992
          if foreign then number, count, prev = current, 0, 0 end
        end
        if value and not foreign then
          expiry_before = (day > 0 and month_end(number, day) or (number + (drain_or_mode == 1 and count > 0 and 2 or 1)) * unit_or_span * tick_length) + (2 * count > capacity and grid or 0)
          if current > number + 1 then
            number, count, prev = current, 0, 0
          elseif current > number then
            number, count, prev = current, 0, drain_or_mode == 1 and count or 0
          elseif current < number - 1 then
            number, moved = current, true
          end
        end
        if not foreign then
          local left = (number + 1) * unit_or_span - window_tick
          if left > unit_or_span then left = unit_or_span end
          local room = (capacity - count) * unit_or_span - prev * left
          fits = cost <= 0 or cost <= capacity and cost * unit_or_span <= room
          local took, units = take and fits and cost ~= 0, cost
          if owe then
            reply4 = 0
            if take and not fits then
              units = math.max(0, math.min(cost, most - count))
              took, reply4 = units > 0, cost - units
            end
          end
          if copies > 1 then
            fit_count = fits and (room - room % (cost * unit_or_span)) / (cost * unit_or_span) or 0
            if fit_count > copies then fit_count = copies end
            count_before = count
          end
          if took then
            count = count + (granted and granted < fit_count and granted or fit_count) * units
            if count < 0 then count, prev = 0, prev + count end
            if prev < 0 then prev = 0 end
          end
          if took or moved then
            if count == 0 and prev == 0 then
              value, number = false, current
            elseif prev == 0 then
              value = format('%d:%d', number, count)
            else
              value = format('%d:%d:%d', number, count, prev)
            end
            expiry = (day > 0 and month_end(number, day) or (number + (drain_or_mode == 1 and count > 0 and 2 or 1)) * unit_or_span * tick_length) + (2 * count > capacity and grid or 0)
          end
        end
        reply1, reply2, reply3 = fits and count or -1 - count, number, prev
        if copies > 1 then reply1, reply4 = count_before, fit_count end

      elseif kernel == 2 then -- log.go: Step, over stamps.go
        local n, first, used, newest, wait, changed = 0, 0, 0, 0, 0, false
        -- base + low is the oldest tick that a stamp can stand for. Counted from there, dead is
        -- the newest tick that no longer counts, and age is the tick of the oldest unit that counts.
        local log_tick, base, low, dead, age = tick, 0, 0, 0, 0
        if value then
          n = (#value - 16) / 2
          foreign = n < 1 or n % 1 > 0
        end
        if n > 0 and not foreign then
          base, low, age = struct_unpack('<ddI2', value)
          age, newest = (age - low) % 65536, base + low + (struct_unpack('<I2', value, #value - 1) - low) % 65536
          foreign = base % 1 ~= 0 or newest % 1 ~= 0 or newest < 0 or newest > 4503599627370496
        end
        if n > 0 and not foreign then
          expiry_before = (newest + unit_or_span) * tick_length
          expiry_before = expiry_before + -expiry_before % grid
          if newest - tick > unit_or_span then
            -- The clock has stepped back: the units move back with it.
            base, newest, changed = base - newest + tick, tick, true
            value = struct_pack('<dd', base, low) .. sub(value, 17)
          elseif newest > tick then
            log_tick = newest -- time stands still
          end
          dead = log_tick - unit_or_span - base - low
          if age <= dead then
            local live = 1
            first = 1
            while live < n and (struct_unpack('<I2', value, 17 + 2 * live) - low) % 65536 <= dead do
              first, live = live + 1, 2 * live + 1
            end
            if live > n then live = n end
            while first < live do
              local i = first + live
              i = (i - i % 2) / 2
              if (struct_unpack('<I2', value, 17 + 2 * i) - low) % 65536 <= dead then first = i + 1 else live = i end
            end
            if first < n then age = (struct_unpack('<I2', value, 17 + 2 * first) - low) % 65536 end
          end
          used = n - first
        end
        fits = cost <= 0 or cost <= capacity and used + cost <= capacity
        local took = take and not foreign and fits and cost or 0
        if owe then
          reply5 = 0
          if take and not fits then
            took = math.max(0, math.min(cost, most - used))
            reply5 = cost - took
          end
        end
        if not fits and used > 0 then reply4 = base + low + age + unit_or_span end
        if fits or cost <= capacity then
          -- The number of the oldest units that have to expire.
          local expire = used + took + (fits and 1 or cost) - capacity
          if expire > used then
            wait = log_tick + unit_or_span
          elseif expire > 1 then
            wait = base + low + (struct_unpack('<I2', value, 15 + 2 * (first + expire)) - low) % 65536 + unit_or_span
          elseif expire == 1 then
            wait = base + low + age + unit_or_span
          end
        end
        if took > 0 then
          if used == 0 then
            base, low, value = log_tick, 0, struct_pack('<dd', log_tick, 0)
          elseif log_tick - base - low >= 65536 or 8 * first > n then
            -- Expired stamps are dropped only now and then: a copy costs more than a few stamps.
            low = low + age
            value = struct_pack('<dd', base, low) .. sub(value, 17 + 2 * first)
          end
          local stamp = struct_pack('<I2', (log_tick - base) % 65536)
          value = value .. (took > 1 and string.rep(stamp, took) or stamp)
          newest, used, changed = log_tick, used + took, true
        elseif took < 0 and n > 0 then
          used, changed = used + took, true
          if used > 0 then
            newest = base + low + (struct_unpack('<I2', value, 15 + 2 * (first + used)) - low) % 65536
            value = struct_pack('<dd', base, low) .. sub(value, 17 + 2 * first, 16 + 2 * (first + used))
          else
            used, value = 0, false
          end
        end
        if changed then
          expiry = (newest + (2 * used > capacity and 2 or 1) * unit_or_span) * tick_length
          expiry = expiry + -expiry % grid
        end
        if used == 0 then newest = 0 end
        reply1, reply2, reply3, reply4 = fits and used or -1 - used, newest, wait, reply4 or 0

      elseif kernel == 3 then -- log.go: Step, over counts.go
        -- first is the index, from 0, of the first of the 33 ticks that counts.
        local first, used, newest, wait, changed = 33, 0, 0, 0, false
        local log_tick = tick
        foreign = value and #value ~= 148
        if value and not foreign then
          newest, used = struct_unpack('<dd', value)
          foreign = newest % 1 ~= 0 or newest < 0 or newest > 4503599627370496 or used % 1 ~= 0 or used > 4503599627370496
        end
        if value and not foreign then
          expiry_before = (newest + unit_or_span) * tick_length
          expiry_before = expiry_before + -expiry_before % grid
          if newest - tick > unit_or_span then
            newest, changed = tick, true
            value = struct_pack('<dd', newest, used) .. sub(value, 17)
          elseif newest > tick then
            log_tick = newest
          end
          first = log_tick - newest + 33 - unit_or_span
          if first > 33 then first = 33 end
          for i = 0, first - 1 do used = used - struct_unpack('<I4', value, 17 + 4 * i) end
          foreign = used < 0 or first == 33 and used > 0
        end
        if foreign then first, used = 33, 0 end
        fits = cost <= 0 or cost <= capacity and used + cost <= capacity
        local took = take and not foreign and fits and cost or 0
        if owe then
          reply5 = 0
          if take and not fits then
            took = math.max(0, math.min(cost, most - used))
            reply5 = cost - took
          end
        end
        if took > 0 then
          local kept, n = '', took
          if used > 0 and log_tick == newest then
            kept, n = sub(value, 17 + 4 * first, 144), took + struct_unpack('<I4', value, 145)
          elseif used > 0 then
            kept = sub(value, 17 + 4 * first) .. string.rep('\0\0\0\0', log_tick - newest - 1)
          end
          newest, used, changed = log_tick, used + took, true
          value = struct_pack('<dd', newest, used) .. string.rep('\0', 128 - #kept) .. kept .. struct_pack('<I4', n)
        elseif took < 0 and value then
          used, changed = used + took, true
          if used > 0 then
            local i, n, back = 32, struct_unpack('<I4', value, 145), -took
            while n <= back do
              i, back = i - 1, back - n
              n = struct_unpack('<I4', value, 17 + 4 * i)
            end
            newest = newest - 32 + i
            local kept = sub(value, 17 + 4 * first, 16 + 4 * i)
            value = struct_pack('<dd', newest, used) .. string.rep('\0', 128 - #kept) .. kept .. struct_pack('<I4', n - back)
          else
            used, value = 0, false
          end
        end
        local expire = used + (fits and 1 or cost) - capacity
        if not fits and used > 0 then
          local i = took > 0 and 33 - unit_or_span or first
          while i < 32 and struct_unpack('<I4', value, 17 + 4 * i) == 0 do i = i + 1 end
          reply4 = newest - 32 + i + unit_or_span
        end
        if (fits or cost <= capacity) and expire > 0 then
          local i = changed and 33 - unit_or_span or first
          local n = struct_unpack('<I4', value, 17 + 4 * i)
          while n < expire and i < 32 do
            i, expire = i + 1, expire - n
            n = struct_unpack('<I4', value, 17 + 4 * i)
          end
          wait = newest - 32 + i + unit_or_span
        end
        if changed then
          expiry = (newest + (2 * used > capacity and 2 or 1) * unit_or_span) * tick_length
          expiry = expiry + -expiry % grid
        end
        if used == 0 then newest = 0 end
        reply1, reply2, reply3, reply4 = fits and used or -1 - used, newest, wait, reply4 or 0

      elseif kernel < 5 then -- log.go: Step, over runs.go, with an entry for each unit
        local n, used, newest, wait = 0, 0, 0, 0
        local first, log_tick, changed = 0, tick, false -- first: the first entry that counts
        key, width, size = KEYS[key_index], drain_or_mode, 256 ^ drain_or_mode
        spec = sub('<I1<I2<I3<I4<I5<I6<I7', 3 * drain_or_mode - 2, 3 * drain_or_mode)
        local header
        if value == nil then
          value = pcall('GETRANGE', key, '0', '4095')
          if value.err then value = sub(value.err, 1, 9) == 'WRONGTYPE' and '!' or call('GETRANGE', key, '0', '4095') end
          states[key_index], header = value, value
          if #value == 4096 then
            n = call('STRLEN', key)
            if n > 4096 then value = (n - 16) / drain_or_mode end
          end
        elseif type(value) == 'number' then
          header = call('GETRANGE', key, '0', '15')
        else
          value = value or ''
          header = value
        end
        if type(value) == 'number' then
          text, n = nil, value
        else
          text, n = value, value == '' and 0 or (#value - 16) / drain_or_mode
        end
        foreign = n < 0 or n % 1 > 0
        if n > 0 and not foreign then
          base, low = struct_unpack('<dd', header)
          newest = tick_of(n - 1)
          foreign = base % 1 ~= 0 or newest % 1 ~= 0 or newest < 0 or newest > 4503599627370496
        end
        if n > 0 and not foreign then
          expiry_before = (newest + unit_or_span) * tick_length
          expiry_before = expiry_before + -expiry_before % grid
          if newest - tick > unit_or_span then
            -- The clock has stepped back: the entries move back with it.
            base, newest, changed = base - (newest - tick), tick, true
            header = struct_pack('<dd', base, low)
            if text then
              text = header .. sub(text, 17)
            else
              call('SETRANGE', key, '0', header)
            end
          elseif newest > tick then
            log_tick = newest -- time stands still
          end
          local edge = log_tick - unit_or_span
          if tick_of(0) <= edge then
            first = 1
            local live = 1
            while live < n and tick_of(live) <= edge do
              first, live = live + 1, 2 * live + 1
            end
            if live > n then live = n end
            while first < live do
              local i = first + live
              i = (i - i % 2) / 2
              if tick_of(i) <= edge then first = i + 1 else live = i end
            end
          end
          used = n - first
        end
        fits = cost <= 0 or cost <= capacity and used + cost <= capacity
        local took = take and not foreign and fits and cost or 0
        if owe then
          reply5 = 0
          if take and not fits then
            took = math.max(0, math.min(cost, most - used))
            reply5 = cost - took
          end
        end
        if foreign then
          text = false
        elseif took > 0 then
          if used == 0 then base, low = log_tick, 0 end
          local entries = struct_pack(spec, (log_tick - base) % size)
          if took > 1 then entries = string.rep(entries, took) end
          if used == 0 then
            n, first, text = 0, 0, struct_pack('<dd', base, low) .. entries
          elseif log_tick - base - low >= size or not text and 2 * first > n then
            keep_from(first)
            n, first, text = used, 0, text .. entries
          elseif not text then
            call('APPEND', key, entries)
          elseif first > 0 then
            text = sub(text, 1, 16) .. sub(text, 17 + first * drain_or_mode) .. entries
            n, first = used, 0
          else
            text = text .. entries
          end
          newest, used, n, changed = log_tick, used + took, n + took, true
        elseif took < 0 and n > 0 then
          used, changed = used + took, true
          if used > 0 then
            keep_from(first)
            n, first, text = used, 0, sub(text, 1, 16 + used * drain_or_mode)
            newest = tick_of(used - 1)
          else
            n, used, text = 0, 0, ''
          end
        end
        if not fits and used > 0 then reply4 = tick_of(first) + unit_or_span end
        if fits or cost <= capacity then
          local expire = used + (fits and 1 or cost) - capacity
          if expire > 0 then wait = tick_of(first + expire - 1) + unit_or_span end
        end
        value = text or n
        if changed then
          expiry = (newest + (2 * used > capacity and 2 or 1) * unit_or_span) * tick_length
          expiry = expiry + -expiry % grid
          if not text then
            if expires and expiry ~= expiry_before then
              call('PEXPIREAT', key, format('%d', (expiry + -expiry % 1000) / 1000))
            end
            expiry = nil
          end
        end
        if used == 0 then newest = 0 end
        reply1, reply2, reply3, reply4 = fits and used or -1 - used, newest, wait, reply4 or 0

      elseif kernel < 6 then -- lock.go: stepLock, Offend, locked, penalty
        local offends, ends, count, forgotten, changed = false, 0, 0, 0, false
        local once, watched
        once, watched, pos = struct_unpack('<HH', arg, pos)
        for _ = 1, watched do
          local at
          at, pos = struct_unpack('<H', arg, pos)
          local first = out[before + at]
          offends = offends or first < 0 and first > -9007199254740992
        end
        if once > 0 and out[before + once] < 0 then offends = false end
        if value then
          ends, count, forgotten = string.match(value, '^(%d+):(%d+):(%d+)$')
          ends, count, forgotten = tonumber(ends), tonumber(count), tonumber(forgotten)
          foreign = not ends or count < 1 or forgotten < ends or forgotten + count >= 9007199254740992
          if foreign or now >= forgotten then ends, count, forgotten = 0, 0, 0 end
        end
        local length = tick_length
        for _ = 2, count do
          if length >= capacity then break end
          length = length * unit_or_span
          if length > capacity then length = capacity end
        end
        if ends - now > 2 * length then
          ends, forgotten, changed = now + length, now + length + forgotten - ends, true
        end
        if cost < 0 then
          if take and value then ends, count, forgotten, changed = 0, 0, 0, true end
        elseif cost > 0 then
          fits = now >= ends and not offends
          if offends and now >= ends and not foreign then
            if count == 0 then
              count = 1
            elseif length < capacity then
              count, length = count + 1, length * unit_or_span
              if length > capacity then length = capacity end
            end
            ends, changed = now + length, true
            forgotten = ends + grid
          end
        end
        if changed and not foreign then
          value = count > 0 and format('%d:%d:%d', ends, count, forgotten)
          expiry = forgotten
        end
        reply1, reply2, reply3 = fits and count or -1 - count, ends, forgotten

      else -- permits.go: Step, Look, times, with every change written at once
        local name, number, soon = KEYS[key_index], sub(arg, pos, pos + 7), now + 2 * unit_or_span
        local past, future = format('%d', now), format('%d', soon)
        pos = pos + 8
        if value == nil then
          value = pcall('ZCOUNT', name, '(' .. past, future)
          if type(value) == 'table' then
            if sub(value.err, 1, 9) ~= 'WRONGTYPE' then call('ZCOUNT', name, '(' .. past, future) end
            value = type(pcall('GETRANGE', name, '0', '0')) == 'table' and '!' or ''
            states[key_index] = value
          end
        end
        foreign = type(value) == 'string'
        local used = foreign and 0 or value or 0
        fits = cost <= 0 or cost == 1 and used < capacity
        local held = 0
        if used > 0 and (kernel > 6 or cost == 1 and not fits) then
          held = tonumber(call('ZSCORE', name, number)) or 0
          if held <= now or held > soon then held = 0 end
          fits = fits or cost == 1 and held > 0
        end
        if take and fits and cost ~= 0 and not foreign then
          if call('ZCARD', name) > used then
            call('ZREMRANGEBYSCORE', name, '-inf', past)
            call('ZREMRANGEBYSCORE', name, '(' .. future, '+inf')
          end
          if cost > 0 then
            used = used + call('ZADD', name, format('%d', now + unit_or_span), number)
            if expires then call('PEXPIREAT', name, format('%d', (soon + -soon % 1000) / 1000)) end
          elseif cost < -1 then
            call('DEL', name)
            used = 0
          else
            used = used - call('ZREM', name, number)
          end
          value = used
        end
        if kernel > 6 then
          reply2, reply3, reply4 = 0, 0, held
          if used > 0 then
            local function ends(i)
              return tonumber(call('ZRANGEBYSCORE', name, '(' .. past, future, 'WITHSCORES', 'LIMIT', format('%d', i), '1')[2])
            end
            reply2, reply3 = ends(used - 1) - unit_or_span, ends(used > capacity and used - capacity or 0)
          end
        end
        reply1 = fits and used or -1 - used
      end
      if foreign then
        fits, admitted, expiry = false, false, nil
        if (state or states[key_index]) == '!' then
          reply1, value = -18014398509481984, '!'
        else
          call('DEL', KEYS[key_index])
          reply1, value = -9007199254740992, false
        end
      end

      -- A state that several requests change is written by the last request with its key.
      if not single then
        states[key_index] = value
        if defer then
          if expiry then
            if deferred_expiry[key_index] == nil then stored_expiry[key_index] = expiry_before end
            deferred_expiry[key_index] = expiry
          end
          expiry = nil
        elseif deferred_expiry[key_index] then
          expiry, expiry_before, increment = expiry or deferred_expiry[key_index], stored_expiry[key_index], nil
          deferred_expiry[key_index] = nil
        end
      end
      if expiry then
        if not value or value == '' then
          call('DEL', KEYS[key_index])
        elseif not (expiry == expiry_before and increment) or type(pcall('INCRBY', KEYS[key_index], format('%d', increment))) == 'table' then
          -- (INCRBY fails for some strings that tonumber reads, such as ' 7'.)
          if type(value) == 'number' then value = format('%d', value) end
          if expiry == expiry_before then
            call('SET', KEYS[key_index], value, 'KEEPTTL')
          elseif expires then
            call('SET', KEYS[key_index], value, 'PXAT', format('%d', (expiry + -expiry % 1000) / 1000))
          else
            call('SET', KEYS[key_index], value)
          end
        end
      end

      if single then
        if not reply2 then return struct_pack('<dd', now, reply1) end
        return struct_pack(sub('<dddddd', 1, reply5 and 7 or reply4 and 6 or reply3 and 5 or 4), now, reply1, reply2, reply3, reply4, reply5)
      end
      out_length = out_length + 1
      out[out_length] = reply1
      if reply2 then
        out_length = out_length + 1
        out[out_length] = reply2
        if reply3 then
          out_length = out_length + 1
          out[out_length] = reply3
          if reply4 then
            out_length = out_length + 1
            out[out_length] = reply4
            if reply5 then
              out_length = out_length + 1
              out[out_length] = reply5
            end
          end
        end
      end
      if look or not fits and flags % 2 == 0 then admitted = false end
      if fit_count < fewest_fits and flags % 2 == 0 then fewest_fits = fit_count end
    until flags >= 2
    again = admitted and not take
    take, granted = true, fewest_fits
  until not again
end

return struct_pack('<' .. string.rep('d', out_length), unpack(out, 1, out_length))
