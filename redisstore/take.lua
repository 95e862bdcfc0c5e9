-- Decides a list of requests, each a list of charges, all or nothing for each request.
-- This is the arithmetic of meter.go, window.go and log.go: they change together.
--
-- KEYS     the states, each once: first ns short ones, then those of exact logs
-- ARGV[1]  packed, little endian:
--            u16 ns, u16 number of plans
--            per plan    u8 kernel (0 meter, 1 window, and logs: 2 of stamps, 3 of counts,
--                        4 exact), then f64 tick, capacity, grid and
--                        meter   unit, drain, size, full
--                        window  span, 1 if it slides, 0, 0
--                        log     span, 0, 0, 0
--                        exact   span, width: the bytes of an entry, 256^width, 0
--            per charge  u16 key, u16 plan, u8 flags (1 shadow, 2 last of its request,
--                        4 look: take nothing even if all fit, 8 the first of a request
--                        that several make one after the other, of meters and windows),
--                        f64 cost, and if 8 u16 how many
-- ARGV[2]  tests only: the time in microseconds. Nothing expires then.
--
-- The reply is packed f64: the time, and per charge
--                        meter   level
--                        window  count, number, previous count
--                        log     count, newest tick, wait
-- A charge that does not fit has -1-n for its first number n, and -2^53 stands for a
-- state that is not ours, which its request was not decided because of. Where several
-- make one request, the first number is that before the first of them, and one more number
-- follows: how often the cost fits, at most as often as it is asked for.
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
-- All numbers are whole and below 2^53, where a - a % b and a / b are exact.

local call, unpacks, packs, format, sub = redis.call, struct.unpack, struct.pack, string.format, string.sub
local KEYS, arg, now = KEYS, ARGV[1], ARGV[2]
local expires = not now
if expires then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = tonumber(now)
end

local ns, np, pos = unpacks('<HH', arg)
local charges, last = pos + 57 * np, #arg

-- The short states: false, a text, or the t of a meter without rem.
local states
if ns == 1 then
  states = {call('GET', KEYS[1])}
elseif ns > 1 then
  states = call('MGET', unpack(KEYS, 1, ns))
else
  states = {}
end
-- For a key that is written, 2k has its expiry, and 2k-1 the one that it had.
local expiry = {false, false}

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

local plan, kernel, ptick, cap, grid, x, y, z, full, tick
local out, o = {now, 0, 0, 0}, 1

pos = charges
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
        kernel, ptick, cap, grid, x, y, z, full = unpacks('<Bddddddd', arg, 57 * p - 52)
        tick = (now - now % ptick) / ptick
      end
      if flags >= 8 then
        flags = flags - 8
        many, pos = unpacks('<H', arg, pos)
      end
      local look = flags >= 4
      if look then flags = flags - 4 end
      -- A request of one charge is decided and taken in one go. For others the first
      -- round looks whether all fit, and the second takes.
      if take == nil then take = flags >= 2 and not look end
      local fits, bad, times, s = true, false, 1, states[k]

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
        local level, clamped = 0, false
        if t then
          local ahead = t - tick
          if ahead > full then
            level, clamped = z, true
          elseif ahead >= 0 then
            level = ahead * y + rem
            if level > z then level, clamped = z, true end
          end
        end
        local new = level
        if cost > 0 then
          if cost > cap or level + cost * x > z then
            fits, times = false, 0
          elseif many > 1 then
            local room = z - level
            times = (room - room % (cost * x)) / (cost * x)
            if times > many then times = many end
            if take then
              new = level + (granted and granted < times and granted or times) * cost * x
            end
          elseif take then
            new = level + cost * x
          end
        elseif take and cost < 0 then
          new = cost < -cap and 0 or level + cost * x
          if new < 0 then new = 0 end
        end
        o = o + 1
        if many > 1 then
          out[o], out[o + 1] = level, times
          o = o + 1
        else
          out[o] = fits and new or -1 - new
        end
        if not bad and (new ~= level or clamped) then
          local e = 2 * k
          if t and not expiry[e] and coarse == (grid > 1) then
            if rem > 0 then t = t + 1 end
            t = t * ptick
            expiry[e - 1] = t + -t % grid
          end
          rem = new % y
          t = tick + (new - rem) / y
          if new == 0 then
            s = false
          elseif y > 1 then
            s = format(grid > 1 and '-%d:%d' or '%d:%d', t, rem)
          else
            s = grid > 1 and -t or t
          end
          if rem > 0 then t = t + 1 end
          t = t * ptick
          states[k], expiry[e] = s, t + -t % grid
        end

      elseif kernel == 1 then
        local e, n, moved = 2 * k, (tick - tick % x) / x, false
        local number, count, prev, had = n, 0, 0, 0
        if s then
          number, count, prev = string.match(s, '^(%d+):(%d+):?(%d*)$')
          number, count, prev = tonumber(number), tonumber(count), tonumber(prev) or 0
          bad = not number
          if bad then number, count, prev = n, 0, 0 end
        end
        if s and not bad then
          if not expiry[e] then
            expiry[e - 1] = (number + (y == 1 and count > 0 and 2 or 1)) * x * ptick
          end
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
            states[k], expiry[e] = s, (number + (y == 1 and count > 0 and 2 or 1)) * x * ptick
          end
        end
        if many > 1 then
          out[o + 1], out[o + 2], out[o + 3], out[o + 4] = had, number, prev, times
          o = o + 4
        else
          out[o + 1], out[o + 2], out[o + 3] = fits and count or -1 - count, number, prev
          o = o + 3
        end

      elseif kernel == 2 then
        local e, n, first, used, newest, wait, changed = 2 * k, 0, 0, 0, 0, 0, false
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
          if not expiry[e] then
            local e0 = (newest + x) * ptick
            expiry[e - 1] = e0 + -e0 % grid
          end
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
          local e1 = (newest + x) * ptick
          states[k], expiry[e] = s, e1 + -e1 % grid
        end
        if used == 0 then newest = 0 end
        out[o + 1], out[o + 2], out[o + 3] = fits and used or -1 - used, newest, wait
        o = o + 3

      elseif kernel == 3 then
        -- first is the first tick of 33, counted from 0, that counts.
        local e, first, used, newest, wait, changed = 2 * k, 33, 0, 0, 0, false
        local still = tick
        bad = s and #s ~= 148
        if s and not bad then
          newest, used = unpacks('<dd', s)
          if not expiry[e] then
            local e0 = (newest + x) * ptick
            expiry[e - 1] = e0 + -e0 % grid
          end
          if newest - tick > x then
            newest, changed = tick, true
            s = packs('<dd', newest, used) .. sub(s, 17)
          elseif newest > tick then
            still = newest
          end
          first = still - newest + 33 - x
          if first > 33 then first = 33 end
          for i = 0, first - 1 do used = used - unpacks('<I4', s, 17 + 4 * i) end
        end
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
        if (fits or cost <= cap) and expire > 0 then
          local i = changed and 33 - x or first
          local n = unpacks('<I4', s, 17 + 4 * i)
          while n < expire do
            i, expire = i + 1, expire - n
            n = unpacks('<I4', s, 17 + 4 * i)
          end
          wait = newest - 32 + i + x
        end
        if changed then
          local e1 = (newest + x) * ptick
          states[k], expiry[e] = s, e1 + -e1 % grid
        end
        if used == 0 then newest = 0 end
        out[o + 1], out[o + 2], out[o + 3] = fits and used or -1 - used, newest, wait
        o = o + 3

      else
        local e, n, used, newest, wait = 2 * k, 0, 0, 0, 0
        local first, still, changed, e0 = 0, tick, false, nil -- first that counts; when
        key, width, size = KEYS[k], y, z
        spec = sub('<I1<I2<I3<I4<I5<I6<I7', 3 * y - 2, 3 * y)
        local header
        if s == nil then
          s = call('GETRANGE', key, '0', '4095')
          header = s
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
        if fits or cost <= cap then
          local expire = used + (fits and 1 or cost) - cap
          if expire > 0 then wait = at(first + expire - 1) + x end
        end
        states[k] = text or n
        if changed then
          local e1 = (newest + x) * ptick
          e1 = e1 + -e1 % grid
          if text then
            if not expiry[e] then expiry[e - 1] = e0 end
            expiry[e] = e1
          elseif expires and e1 ~= e0 then
            call('PEXPIREAT', key, format('%d', (e1 + -e1 % 1000) / 1000))
          end
        end
        if used == 0 then newest = 0 end
        out[o + 1], out[o + 2], out[o + 3] = fits and used or -1 - used, newest, wait
        o = o + 3
      end
      if bad then
        fits, admitted = false, false
        out[before + 1] = -9007199254740992
      end
      if look or not fits and flags % 2 == 0 then admitted = false end
      if times < least and flags % 2 == 0 then least = times end
    until flags >= 2
    again = admitted and not take
    take, granted = true, least
  until not again
end

for k = 1, #KEYS do
  local e = expiry[2 * k]
  if e then
    local s = states[k]
    if not s or s == '' then
      call('DEL', KEYS[k])
    else
      if type(s) == 'number' then s = format('%d', s) end
      if not expires then
        call('SET', KEYS[k], s)
      elseif e == expiry[2 * k - 1] then
        call('SET', KEYS[k], s, 'KEEPTTL')
      else
        call('SET', KEYS[k], s, 'PXAT', format('%d', (e + -e % 1000) / 1000))
      end
    end
  end
end
if o == 2 then return packs('<dd', now, out[2]) end
if o == 4 then return packs('<dddd', now, out[2], out[3], out[4]) end
return packs('<' .. string.rep('d', o), unpack(out, 1, o))
