-- Decides a list of requests, each a list of charges, all or nothing for each request.
-- This is the arithmetic of meter.go, window.go and log.go: they change together.
--
-- KEYS     the states, each once: first ns short ones, then those of exact logs
-- ARGV[1]  packed, little endian:
--            u16 ns, u16 number of plans
--            per plan    u8 kernel (0 meter, 1 window, and logs: 2 of stamps, 3 of counts,
--                        4 exact), then f64 tick, capacity, grid and
--                        meter   unit, drain
--                        window  span, 1 if it slides
--                        log     span, 0
--                        exact   span, width: the bytes of an entry
--            per charge  u16 key, u16 plan, u8 flags (1 shadow, 2 last of its request,
--                        4 look: take nothing even if all fit, 8 the first of a request
--                        that several make one after the other, of meters and windows,
--                        16 a later request has this key, too), f64 cost, and if 8 u16
--                        how many
-- ARGV[2]  tests only: the time in microseconds. Nothing expires then.
--
-- The reply is packed f64: the time, and per charge
--                        meter   level
--                        window  count, number, previous count
--                        log     count, newest tick, wait, and if it does not fit the tick
--                                at which the oldest unit expires, else 0
-- A charge that does not fit has -1-n for its first number n. Where several make one
-- request, the first number is that before the first of them, and one more number
-- follows: how often the cost fits, at most as often as it is asked for.
--
-- A key may hold what is not ours. Its request is not decided then, and the first number
-- is -2^53 where it was a text, which was deleted, and -2^54 where it is of another type,
-- which is left alone: somebody may miss it. No text must stop the script, since requests
-- before it have been taken by then.
--
-- States:
--   meter   "t" or "t:rem", where t*drain + rem = tick*drain + level
--   window  "number:count" or "number:count:previous"
--   stamps  f64 base, f64 low, and a u16 per unit in order: its tick - base, modulo 2^16.
--           All of them lie in [base+low, base+low+2^16).
--   counts  f64 tick of the newest unit, f64 sum, and u32 units of each of the 33 ticks up
--           to that one
--   exact   as stamps, with entries of width bytes
--
-- A key expires when its state equals the empty one, rounded up to the grid, so that
-- most writes leave the expiry as it is. As the grid of a meter depends on its burst,
-- which may change, a minus in front of t says that it is the coarse one.
--
-- All numbers are whole and below 2^53, where a - a % b and a / b are exact. A product that
-- is not is only found to be too large.
--
-- Most calls are of one charge. It does without the tables that hold what several have.

local call, pcall = redis.call, redis.pcall
local unpacks, packs, format, sub = struct.unpack, struct.pack, string.format, string.sub
local KEYS, arg, now = KEYS, ARGV[1], ARGV[2]
local expires = not now
if expires then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = tonumber(now)
end

local ns, np, kernel, ptick, cap, grid, x, y, pos = unpacks('<HHBddddd', arg)
local plan, tick = 1, (now - now % ptick) / ptick
local last = #arg
pos = 5 + 41 * np
local alone = last - pos < 20 -- there is only one charge

-- The short states: false, a text, or the t of a meter without rem. '!', which is no state
-- of anything, stands for another type.
local state, states
if ns == 0 then
  states = {}
elseif alone then
  state = pcall('GET', KEYS[1])
  if state and state.err then state = sub(state.err, 1, 9) == 'WRONGTYPE' and '!' or call('GET', KEYS[1]) end
else
  states = call('MGET', unpack(KEYS, 1, ns))
  for k = 1, ns do
    if not states[k] then -- missing, or of another type: MGET does not say
      local s = pcall('GET', KEYS[k])
      states[k] = s and s.err and (sub(s.err, 1, 9) == 'WRONGTYPE' and '!' or call('GET', KEYS[k])) or s
    end
  end
end
-- Of a key whose last state is still to be written: when that expires, and when the one
-- that is there does.
local later, sooner

-- The exact log at hand. Its text is nil where it is too long to be read for every decision:
-- then it is probed and appended to in place, and its state is the number of entries.
local key, text, base, low, width, spec, size
local at, keep
if ns < #KEYS then
  -- The tick of entry i, counted from 0.
  at = function(i)
    local from, entry = 16 + i * width
    if text then
      entry = unpacks(spec, text, from + 1)
    else
      entry = unpacks(spec, call('GETRANGE', key, format('%d', from), format('%d', from + width - 1)))
    end
    return base + low + (entry - low) % size
  end

  -- Reads the log, if it is a long one, and keeps what is in it from entry first on.
  keep = function(first)
    local from = 16 + first * width
    low = at(first) - base
    text = (text and sub(text, from + 1)) or call('GETRANGE', key, format('%d', from), '-1')
    text = packs('<dd', base, low) .. text
  end
end

local out, o
if not alone then out, o, later, sooner = {now, 0, 0, 0}, 1, {}, {} end

while pos <= last do
  local request, before, many, take, again, granted = pos, o, 1
  repeat
    local admitted, least = true, 65536
    pos, o = request, before
    repeat
      local k, p, flags, cost
      k, p, flags, cost, pos = unpacks('<HHBd', arg, pos)
      if p ~= plan then
        plan = p
        kernel, ptick, cap, grid, x, y = unpacks('<Bddddd', arg, 41 * p - 36)
        tick = (now - now % ptick) / ptick
      end
      local defer = flags >= 16
      if defer then flags = flags - 16 end
      if flags >= 8 then
        flags = flags - 8
        many, pos = unpacks('<H', arg, pos)
      end
      local look = flags >= 4
      if look then flags = flags - 4 end
      -- A request of one charge is decided and taken in one go. For others the first
      -- round looks whether all fit, and the second takes.
      if take == nil then take = flags >= 2 and not look end
      local fits, bad, times, s = true, false, 1, state
      if states then s = states[k] end
      -- Set by the kernels: if the state changes, to s, when that expires; when the one
      -- that is there does; what is to be added to it if it is a number; and the reply.
      local e1, e0, by, r1, r2, r3, r4

      if kernel == 0 then
        local t, rem, coarse = s, 0, false
        if s then
          if y > 1 then
            t, rem = string.match(s, '^(-?%d+):?(%d*)$')
            rem = tonumber(rem) or 0
          end
          t = tonumber(t)
          bad = not t or t % 1 ~= 0
          if bad then
            t = nil
          elseif t < 0 then
            t, coarse = -t, true
          end
        end
        local level, clamped, size = 0, false, cap * x
        if t and t >= tick then
          level = (t - tick) * y + rem
          if level > size then level, clamped = size, true end
        end
        local new, units = level, cost * x
        if cost > 0 then
          if level + units > size then
            fits, times = false, 0
          elseif many > 1 then
            local room = size - level
            times = (room - room % units) / units
            if times > many then times = many end
            if take then
              new = level + (granted and granted < times and granted or times) * units
            end
          elseif take then
            new = level + units
          end
        elseif take and cost < 0 then
          new = level + units
          if new < 0 then new = 0 end
        end
        r1 = fits and new or -1 - new
        if many > 1 then r1, r2 = level, times end
        if not bad and (new ~= level or clamped) then
          local wide, old = grid > 1, t
          if t and coarse == wide then
            if rem > 0 then t = t + 1 end
            t = t * ptick
            e0 = t + -t % grid
          end
          rem = new % y
          t = tick + (new - rem) / y
          if new == 0 then
            s = false
          elseif y > 1 then
            s = format(wide and '-%d:%d' or '%d:%d', t, rem)
          else
            s = wide and -t or t
            if e0 then by = wide and old - t or t - old end
          end
          if rem > 0 then t = t + 1 end
          t = t * ptick
          e1 = t + -t % grid
        end

      elseif kernel == 1 then
        local n, moved = (tick - tick % x) / x, false
        local number, count, prev, had = n, 0, 0, 0
        if s then
          number, count, prev = string.match(s, '^(%d+):(%d+):?(%d*)$')
          number, count, prev = tonumber(number), tonumber(count), tonumber(prev) or 0
          bad = not number or number + count + prev >= 9007199254740992
          if bad then number, count, prev = n, 0, 0 end
        end
        if s and not bad then
          e0 = (number + (y == 1 and count > 0 and 2 or 1)) * x * ptick
          if n > number + 1 then
            number, count, prev = n, 0, 0
          elseif n > number then
            number, count, prev = n, 0, y == 1 and count or 0
          elseif n < number - 1 then
            number, moved = n, true
          end
        end
        if not bad then
          local left = (number + 1) * x - tick
          if left > x then left = x end
          local room = (cap - count) * x - prev * left
          fits = cost <= 0 or cost <= cap and cost * x <= room
          local took = take and fits and cost ~= 0
          if many > 1 then
            times = fits and (room - room % (cost * x)) / (cost * x) or 0
            if times > many then times = many end
            had = count
          end
          if took then
            count = count + (granted and granted < times and granted or times) * cost
            if count < 0 then count, prev = 0, prev + count end
            if prev < 0 then prev = 0 end
          end
          if took or moved then
            if count == 0 and prev == 0 then
              s, number = false, n
            elseif prev == 0 then
              s = format('%d:%d', number, count)
            else
              s = format('%d:%d:%d', number, count, prev)
            end
            e1 = (number + (y == 1 and count > 0 and 2 or 1)) * x * ptick
          end
        end
        r1, r2, r3 = fits and count or -1 - count, number, prev
        if many > 1 then r1, r4 = had, times end

      elseif kernel == 2 then
        local n, first, used, newest, wait, changed = 0, 0, 0, 0, 0, false
        -- low is that of the oldest tick that a stamp can stand for, dead and age are of the
        -- newest that no longer counts and of the oldest that does, in ticks after low.
        local still, base, low, dead, age = tick, 0, 0, 0, 0
        if s then
          n = (#s - 16) / 2
          bad = n < 1 or n % 1 > 0
        end
        if n > 0 and not bad then
          base, low, age = unpacks('<ddI2', s)
          age, newest = (age - low) % 65536, base + low + (unpacks('<I2', s, #s - 1) - low) % 65536
          bad = base % 1 ~= 0 or newest % 1 ~= 0 or newest < 0 or newest > 4503599627370496
        end
        if n > 0 and not bad then
          e0 = (newest + x) * ptick
          e0 = e0 + -e0 % grid
          if newest - tick > x then
            -- The clock has stepped back: the units move along.
            base, newest, changed = base - newest + tick, tick, true
            s = packs('<dd', base, low) .. sub(s, 17)
          elseif newest > tick then
            still = newest -- time stands still
          end
          dead = still - x - base - low
          if age <= dead then
            local live = 1
            first = 1
            while live < n and (unpacks('<I2', s, 17 + 2 * live) - low) % 65536 <= dead do
              first, live = live + 1, 2 * live + 1
            end
            if live > n then live = n end
            while first < live do
              local i = first + live
              i = (i - i % 2) / 2
              if (unpacks('<I2', s, 17 + 2 * i) - low) % 65536 <= dead then first = i + 1 else live = i end
            end
            if first < n then age = (unpacks('<I2', s, 17 + 2 * first) - low) % 65536 end
          end
          used = n - first
        end
        fits = cost <= 0 or cost <= cap and used + cost <= cap
        local took = take and not bad and fits and cost or 0
        if not fits and used > 0 then r4 = base + low + age + x end
        if fits or cost <= cap then
          -- That many of the oldest have to expire.
          local expire = used + (took ~= 0 and took + 1 or fits and 1 or cost) - cap
          if expire > used then
            wait = still + x
          elseif expire > 1 then
            wait = base + low + (unpacks('<I2', s, 15 + 2 * (first + expire)) - low) % 65536 + x
          elseif expire == 1 then
            wait = base + low + age + x
          end
        end
        if took > 0 then
          if used == 0 then
            base, low, s = still, 0, packs('<dd', still, 0)
          elseif still - base - low >= 65536 or 8 * first > n then
            -- What has expired goes now and then, as a copy costs more than a few stamps.
            low = low + age
            s = packs('<dd', base, low) .. sub(s, 17 + 2 * first)
          end
          local stamp = packs('<I2', (still - base) % 65536)
          s = s .. (took > 1 and string.rep(stamp, took) or stamp)
          newest, used, changed = still, used + took, true
        elseif took < 0 and n > 0 then
          used, changed = used + took, true
          if used > 0 then
            newest = base + low + (unpacks('<I2', s, 15 + 2 * (first + used)) - low) % 65536
            s = packs('<dd', base, low) .. sub(s, 17 + 2 * first, 16 + 2 * (first + used))
          else
            used, s = 0, false
          end
        end
        if changed then
          e1 = (newest + x) * ptick
          e1 = e1 + -e1 % grid
        end
        if used == 0 then newest = 0 end
        r1, r2, r3, r4 = fits and used or -1 - used, newest, wait, r4 or 0

      elseif kernel == 3 then
        -- first is the first tick of 33, counted from 0, that counts.
        local first, used, newest, wait, changed = 33, 0, 0, 0, false
        local still = tick
        bad = s and #s ~= 148
        if s and not bad then
          newest, used = unpacks('<dd', s)
          bad = newest % 1 ~= 0 or newest < 0 or newest > 4503599627370496 or used % 1 ~= 0 or used > 4503599627370496
        end
        if s and not bad then
          e0 = (newest + x) * ptick
          e0 = e0 + -e0 % grid
          if newest - tick > x then
            newest, changed = tick, true
            s = packs('<dd', newest, used) .. sub(s, 17)
          elseif newest > tick then
            still = newest
          end
          first = still - newest + 33 - x
          if first > 33 then first = 33 end
          for i = 0, first - 1 do used = used - unpacks('<I4', s, 17 + 4 * i) end
          bad = used < 0 or first == 33 and used > 0
        end
        if bad then first, used = 33, 0 end
        fits = cost <= 0 or cost <= cap and used + cost <= cap
        local took = take and not bad and fits and cost or 0
        if took > 0 then
          local kept, n = '', took
          if used > 0 and still == newest then
            kept, n = sub(s, 17 + 4 * first, 144), took + unpacks('<I4', s, 145)
          elseif used > 0 then
            kept = sub(s, 17 + 4 * first) .. string.rep('\0\0\0\0', still - newest - 1)
          end
          newest, used, changed = still, used + took, true
          s = packs('<dd', newest, used) .. string.rep('\0', 128 - #kept) .. kept .. packs('<I4', n)
        elseif took < 0 and s then
          used, changed = used + took, true
          if used > 0 then
            local i, n, back = 32, unpacks('<I4', s, 145), -took
            while n <= back do
              i, back = i - 1, back - n
              n = unpacks('<I4', s, 17 + 4 * i)
            end
            newest = newest - 32 + i
            local kept = sub(s, 17 + 4 * first, 16 + 4 * i)
            s = packs('<dd', newest, used) .. string.rep('\0', 128 - #kept) .. kept .. packs('<I4', n - back)
          else
            used, s = 0, false
          end
        end
        local expire = used + (fits and 1 or cost) - cap
        if not fits and used > 0 then
          local i = first
          while i < 32 and unpacks('<I4', s, 17 + 4 * i) == 0 do i = i + 1 end
          r4 = newest - 32 + i + x
        end
        if (fits or cost <= cap) and expire > 0 then
          local i = changed and 33 - x or first
          local n = unpacks('<I4', s, 17 + 4 * i)
          while n < expire and i < 32 do
            i, expire = i + 1, expire - n
            n = unpacks('<I4', s, 17 + 4 * i)
          end
          wait = newest - 32 + i + x
        end
        if changed then
          e1 = (newest + x) * ptick
          e1 = e1 + -e1 % grid
        end
        if used == 0 then newest = 0 end
        r1, r2, r3, r4 = fits and used or -1 - used, newest, wait, r4 or 0

      else
        local n, used, newest, wait = 0, 0, 0, 0
        local first, still, changed = 0, tick, false -- first that counts; when
        key, width, size = KEYS[k], y, 256 ^ y
        spec = sub('<I1<I2<I3<I4<I5<I6<I7', 3 * y - 2, 3 * y)
        local header
        if s == nil then
          s = pcall('GETRANGE', key, '0', '4095')
          if s.err then s = sub(s.err, 1, 9) == 'WRONGTYPE' and '!' or call('GETRANGE', key, '0', '4095') end
          states[k], header = s, s
          if #s == 4096 then
            n = call('STRLEN', key)
            if n > 4096 then s = (n - 16) / y end
          end
        elseif type(s) == 'number' then
          header = call('GETRANGE', key, '0', '15')
        else
          s = s or ''
          header = s
        end
        if type(s) == 'number' then
          text, n = nil, s
        else
          text, n = s, s == '' and 0 or (#s - 16) / y
        end
        bad = n < 0 or n % 1 > 0
        if n > 0 and not bad then
          base, low = unpacks('<dd', header)
          newest = at(n - 1)
          bad = base % 1 ~= 0 or newest % 1 ~= 0 or newest < 0 or newest > 4503599627370496
        end
        if n > 0 and not bad then
          e0 = (newest + x) * ptick
          e0 = e0 + -e0 % grid
          if newest - tick > x then
            -- The clock has stepped back: the entries move along.
            base, newest, changed = base - (newest - tick), tick, true
            header = packs('<dd', base, low)
            if text then
              text = header .. sub(text, 17)
            else
              call('SETRANGE', key, '0', header)
            end
          elseif newest > tick then
            still = newest -- time stands still
          end
          local edge = still - x
          if at(0) <= edge then
            first = 1
            local live = 1
            while live < n and at(live) <= edge do
              first, live = live + 1, 2 * live + 1
            end
            if live > n then live = n end
            while first < live do
              local i = first + live
              i = (i - i % 2) / 2
              if at(i) <= edge then first = i + 1 else live = i end
            end
          end
          used = n - first
        end
        fits = cost <= 0 or cost <= cap and used + cost <= cap
        if bad then
          text = false
        elseif take and fits and cost > 0 then
          if used == 0 then base, low = still, 0 end
          local entries = packs(spec, (still - base) % size)
          if cost > 1 then entries = string.rep(entries, cost) end
          if used == 0 then
            n, first, text = 0, 0, packs('<dd', base, low) .. entries
          elseif still - base - low >= size or not text and 2 * first > n then
            keep(first)
            n, first, text = used, 0, text .. entries
          elseif not text then
            call('APPEND', key, entries)
          elseif first > 0 then
            text = sub(text, 1, 16) .. sub(text, 17 + first * y) .. entries
            n, first = used, 0
          else
            text = text .. entries
          end
          newest, used, n, changed = still, used + cost, n + cost, true
        elseif take and cost < 0 and n > 0 then
          used, changed = used + cost, true
          if used > 0 then
            keep(first)
            n, first, text = used, 0, sub(text, 1, 16 + used * y)
            newest = at(used - 1)
          else
            n, used, text = 0, 0, ''
          end
        end
        if not fits and used > 0 then r4 = at(first) + x end
        if fits or cost <= cap then
          local expire = used + (fits and 1 or cost) - cap
          if expire > 0 then wait = at(first + expire - 1) + x end
        end
        s = text or n
        if changed then
          e1 = (newest + x) * ptick
          e1 = e1 + -e1 % grid
          if not text then
            if expires and e1 ~= e0 then
              call('PEXPIREAT', key, format('%d', (e1 + -e1 % 1000) / 1000))
            end
            e1 = nil
          end
        end
        if used == 0 then newest = 0 end
        r1, r2, r3, r4 = fits and used or -1 - used, newest, wait, r4 or 0
      end
      if bad then
        fits, admitted, e1 = false, false, nil
        if (state or states[k]) == '!' then
          r1, s = -18014398509481984, '!'
        else
          call('DEL', KEYS[k])
          r1, s = -9007199254740992, false
        end
      end

      -- What several requests change is written by the last that has the key.
      if not alone then
        states[k] = s
        if defer then
          if e1 then
            if later[k] == nil then sooner[k] = e0 end
            later[k] = e1
          end
          e1 = nil
        elseif later[k] then
          e1, e0, by = e1 or later[k], sooner[k], nil
          later[k] = nil
        end
      end
      if e1 then
        if not s or s == '' then
          call('DEL', KEYS[k])
        elseif not (e1 == e0 and by) or type(pcall('INCRBY', KEYS[k], format('%d', by))) == 'table' then
          -- (What INCRBY does not take for a number, such as ' 7', is one here.)
          if type(s) == 'number' then s = format('%d', s) end
          if e1 == e0 then
            call('SET', KEYS[k], s, 'KEEPTTL')
          elseif expires then
            call('SET', KEYS[k], s, 'PXAT', format('%d', (e1 + -e1 % 1000) / 1000))
          else
            call('SET', KEYS[k], s)
          end
        end
      end

      if alone then
        if not r2 then return packs('<dd', now, r1) end
        return packs(sub('<ddddd', 1, r4 and 6 or r3 and 5 or 4), now, r1, r2, r3, r4)
      end
      o = o + 1
      out[o] = r1
      if r2 then
        o = o + 1
        out[o] = r2
        if r3 then
          o = o + 1
          out[o] = r3
          if r4 then
            o = o + 1
            out[o] = r4
          end
        end
      end
      if look or not fits and flags % 2 == 0 then admitted = false end
      if times < least and flags % 2 == 0 then least = times end
    until flags >= 2
    again = admitted and not take
    take, granted = true, least
  until not again
end

return packs('<' .. string.rep('d', o), unpack(out, 1, o))
