// The live section: inputs, figures that follow them, the fragment that holds the state.
(async () => {
  const section = document.querySelector('.live');
  if (!section || typeof DecompressionStream === 'undefined') return;
  const model = await inflated(section.dataset.model);
  const at = selector => section.querySelector(selector);
  const make = (tag, content = '', into = null) => {
    const made = document.createElement(tag);
    made.textContent = content;
    if (into) into.append(made);
    return made;
  };
  const KINDS = Object.keys(model.choices);
  const LABELS = {
    B: 'Batch size B', n: 'Sequence length n', n_layers: 'Layers', d_model: 'Width d_model', n_heads: 'Heads', tokens: 'Training tokens',
    precision: 'Precision', recompute: 'Recomputation', optimizer: 'Optimizer', device: 'Device', devices: 'Devices',
    tensor_parallel: 'Tensor parallel', pipeline_parallel: 'Pipeline parallel', gradient_accumulation: 'Microbatches',
    global_batch_size: 'Global batch size', data_parallel: 'Data parallel', sequence_parallel: 'Sequence parallel',
    loss_parallel: 'Loss parallel', users: 'Users', prompt: 'Prompt tokens', output: 'Output tokens', memory: 'Served on',
  };
  const KEY = {
    peak_bytes: 'Peak', params_total: 'Parameters', model_states_bytes: 'Model states', activations_bytes: 'Activations',
    train_flops_per_token: 'Training FLOPs per token', train_flops: 'Training FLOPs',
  };
  const GROUPS = {
    '': 'Columns of capacity.csv', parameters: 'Parameters', model_states: 'Model states', activations: 'Activations', peak: 'Peak of each phase',
    forward_flops: 'FLOPs of a forward pass', train_flops_per_step: 'Training FLOPs per step, by convention',
  };
  const devices = new Map(model.devices);
  if (model.device.length) devices.set(...model.device);
  const CONVENTIONS = model.figures.filter(([group]) => group === 'train_flops_per_step').map(([, name]) => name);
  const served = model.served, INPUTS = { ...model.inputs, ...(served ? served.inputs : {}) };
  const initial = { ...model.values, ...(served ? served.values : {}) }, onServed = new Map(devices);
  if (served) onServed.set(...served.device);
  const VIEWS = { device: [...devices.keys()], convention: CONVENTIONS }; // choices that change no figure
  const start = { ...Object.fromEntries(Object.keys(INPUTS).map(name => [name, initial[name]])),
    ...Object.fromEntries(KINDS.map((kind, number) => [kind, model.chosen[number]])), device: model.device[0] || model.devices[0][0],
    convention: model.convention, ...(served ? { memory: served.device[0] } : {}) };
  const state = { ...start }, controls = {}, evaluate = evaluator(model.helpers);
  let now, shown = false;

  const choicesOf = name => VIEWS[name] || model.choices[name] || (served && name === 'memory' && [...onServed.keys()]);
  function control(name) {
    const label = name === 'convention' ? at('[name=convention]').parentElement : make('label', '', at(served && name in served.values ? '.serving .fields' : '.fields'));
    const choices = choicesOf(name);
    if (!label.firstChild) make('span', LABELS[name], label);
    const field = controls[name] = label.querySelector('select') || make(choices ? 'select' : 'input', '', label);
    if (choices) for (const choice of choices) make('option', choice, field);
    else Object.assign(field, { inputMode: 'numeric', pattern: '[1-9][0-9]{0,17}', required: true });
    field.name = name;
    field.oninput = () => { state[name] = field.value.trim(); follow(); };
  }

  function scenarios() {
    if (!Object.keys(model.presets).length) return;
    const label = make('label', '', at('.fields')), field = make('select', '', label);
    label.prepend(make('span', 'Scenario'));
    for (const name of ['base', ...Object.keys(model.presets)]) make('option', name, field);
    field.onchange = () => {
      const [chosen, sizes] = model.presets[field.value] || [model.chosen, {}];
      Object.assign(state, start, sizes, Object.fromEntries(KINDS.map((kind, number) => [kind, chosen[number]])), { device: state.device, convention: state.convention });
      fill();
      follow();
    };
  }

  const changes = () => Object.keys(start).filter(name => state[name] !== start[name]);
  const settings = () => changes().filter(name => !VIEWS[name]).map(name => [INPUTS[name] || model.keys[name] || 'serving.memory', state[name]]);
  const quoted = word => (/^[\w.,/=:+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const command = () => ['planner run', quoted(model.spec), ...settings().map(([key, value]) => `--set ${quoted(`${key}=${value}`)}`)].join(' ');
  // Returns a spec that builds on the page's, with what was changed.
  function yaml() {
    const sections = {};
    for (const [key, value] of settings()) {
      const [section, name] = key.split('.');
      (sections[section] ||= []).push(`  ${name}: ${value}`);
    }
    const lines = Object.entries(sections).map(([section, inside]) => `${section}:\n${inside.join('\n')}\n`);
    const file = model.spec.split('/').at(-1);
    return `# beside ${model.spec}\nname: ${JSON.stringify(`${model.name}-changed`)}\nextends: ${JSON.stringify(file)}\n${lines.join('')}`;
  }

  const chosen = () => KINDS.map(kind => state[kind]);
  // Returns the figures with some other inputs: the values of inputs and of symbols, how to evaluate expressions, the numbers of the
  // figures' expressions on the device with the largest peak, and all kinds of devices; or why there are none.
  function solved(others) {
    const values = Object.fromEntries(Object.entries(model.values).map(([name, value]) => [name, BigInt(others[name] ?? state[name] ?? value)]));
    for (const name in model.inputs) values[model.inputs[name].split('.').at(-1)] = values[name];
    const first = evaluate(values);
    for (const name in model.derived) values[name] = first(model.derived[name]);
    const size = evaluate(values), kinds = chosen(), plans = model.plans[kinds.join(' ')];
    for (const [test, message] of model.rules[kinds.slice(3).join(' ')] || []) {
      if (!holds(test, size)) return { values, why: `${message.replace(/\{(\w+)\}/g, (_, name) => exactly(values[name]))}.` };
    }
    if (!plans) return { values, why: `${kinds.join(', ')} cannot be combined, or this page has no formulas for them together. The command below plans them.` };
    for (const [set, rows, ranks] of plans) {
      const [definitions, guards] = model.sets[set], symbols = { ...values };
      for (const name in definitions) symbols[name] = size(definitions[name]);
      const of = evaluate(symbols);
      if (!guards.every(guard => holds(guard, of))) continue;
      const peaks = rows.map(row => of(model.sizes[row[PEAK]])), most = peaks.reduce((top, peak) => (peak > top ? peak : top));
      return { values, symbols, definitions, of, ranks, peak: most, row: rows[peaks.indexOf(most)], why: '' };
    }
    return { values, why: 'These sizes call for other kernels or operators than the formulas of this page have. The command below plans them.' };
  }

  function refusal() {
    for (const name in INPUTS) if (!controls[name].validity.valid) return `${LABELS[name]} must be a positive integer.`;
    now = solved({});
    return now.why;
  }

  const figure = name => model.figures.findIndex(([group, own]) => !group && own === name), PEAK = figure('peak_bytes');
  const valueOf = number => now.of(model.sizes[now.row[number]]);

  const memory = () => BigInt(devices.get(state.device)) - BigInt(model.reserve);
  const peakWith = others => {
    const made = solved(others);
    return made.why ? null : made.peak;
  };

  function verdict() {
    const peak = now.peak, free = memory() - peak, reserved = BigInt(model.reserve);
    const most = inBytes(BigInt(devices.get(state.device))) + (reserved ? ` less ${inBytes(reserved)} reserved` : '');
    at('.verdict').className = `verdict ${free < 0n ? 'exceeds' : 'fits'}`;
    at('.verdict').textContent = free < 0n
      ? `✕ Exceeds ${state.device} by ${inBytes(-free)}: peak ${inBytes(peak)}, memory ${most}`
      : `✓ Fits ${state.device} with ${inBytes(free)} free: peak ${inBytes(peak)}, memory ${most}`;
  }

  const cells = [];
  function cell(number, into, small) {
    const button = make('button', '', into), below = small ? make('small', '', into) : make('td', '', into.parentElement);
    Object.assign(button, { type: 'button', onclick: () => explain(number) });
    cells.push([number, button, below]);
  }

  function tables() {
    for (const name in KEY) {
      if (figure(name) < 0) continue;
      const group = make('div', '', at('.key'));
      make('dt', KEY[name], group);
      cell(figure(name), make('dd', '', group), true);
    }
    let body, last;
    model.figures.forEach(([group, name, , meaning], number) => {
      if (group !== last) {
        const table = make('table', '', at('.every'));
        make('caption', GROUPS[group], table);
        body = make('tbody', '', table);
        last = group;
      }
      const row = make('tr', '', body), head = make('th', name, row);
      head.title = meaning;
      head.scope = 'row';
      cell(number, make('td', '', row), false);
    });
  }

  function explain(number) {
    const [, name, unit, meaning] = model.figures[number], size = model.sizes[now.row[number]], dialog = at('dialog');
    dialog.querySelector('h3').textContent = `${name} = ${exactly(valueOf(number))} ${unit}`;
    at('.meaning').textContent = meaning;
    const formula = written(size, model.helpers, base => base), where = Object.entries(now.definitions).filter(([symbol]) => formula.match(new RegExp(`\\b${symbol}\\b`)));
    const lines = where.map(([symbol, text]) => `${symbol} = ${written(text, model.helpers, base => base)} = ${exactly(now.symbols[symbol])}`);
    at('.formula').textContent = lines.length ? `${formula}\n\nwhere ${lines.join('\n      ')}` : formula;
    at('.numbers').textContent = written(size, model.helpers, base => String(now.symbols[base]));
    at('.source').textContent = `The planner's own functions, run on symbols. Sizes: ${[model.spec, ...model.sources].join(', ')}`;
    dialog.showModal();
  }

  const share = (part, whole) => `${Number((part * 1000n) / whole) / 10} %`;
  const names = model.parts.flat(), FAMILIES = ['model states', 'activations', 'passing'];
  const note = name => at(`[data-at=${name}]`);

  function ledger(top) {
    at('.ledger').replaceChildren();
    let part = 0;
    model.parts.forEach((members, family) => {
      const numbers = members.map(() => part++), sum = numbers.reduce((whole, number) => whole + top.parts[number], 0n);
      if (!sum) return;
      const table = make('table', '', at('.ledger'));
      make('caption', `${FAMILIES[family]}: ${inBytes(sum)}`, table);
      const body = make('tbody', '', table);
      for (const number of numbers) {
        if (!top.parts[number]) continue;
        const row = make('tr', '', body);
        make('th', names[number], row).className = `a${number}`;
        make('td', exactly(top.parts[number]), row);
        make('td', inBytes(top.parts[number]), row);
        make('td', share(top.parts[number], top.total), row);
      }
    });
  }

  function bar(top) {
    const whole = top.total > memory() ? top.total : memory();
    at('.bar').replaceChildren();
    const segment = (css, size, name) => {
      const made = make('i', '', at('.bar')), wide = size * 100n >= whole * 6n;
      made.className = css;
      made.style.flex = `${Number((size * 100000n) / whole)} 0 0`;
      made.title = `${name}: ${inBytes(size)}`;
      if (wide) { make('b', inBytes(size), made); make('span', name, made); }
    };
    top.parts.forEach((size, part) => size && segment(`a${part}`, size, names[part]));
    if (whole > top.total) segment('free', whole - top.total, `free in ${state.device}`);
    at('.bar').ariaLabel = `${inBytes(top.total)} at the peak, by part; the table below has the values`;
  }

  function readout(one) {
    const line = at('.readout'), parts = one.parts.map((size, part) => [size, part]).filter(([size]) => size);
    line.replaceChildren(make('b', one.operator), ` · ${model.phases[one.phase]} · `, make('b', inBytes(one.total)), ' allocated');
    make('br', '', line);
    for (const [size, part] of parts.sort(([a], [b]) => (b > a ? 1 : -1)).slice(0, 5)) {
      const shown = make('span', '', line);
      make('i', '', shown).className = `a${part}`;
      shown.append(`${names[part]} ${inBytes(size)}`);
    }
  }

  function pictures() {
    const moments = momentsOf(model, chosen(), now.of);
    at('.memory').hidden = !moments;
    if (moments) {
      const top = highest(moments);
      note('peak').textContent = `The peak comes in the ${model.phases[top.phase]} phase, at ${top.operator}. The parts add up to ${exactly(top.total)} bytes.`;
      bar(top);
      ledger(top);
      at('.phases tbody').replaceChildren();
      model.phases.forEach((name, phase) => {
        const inside = moments.filter(one => one.phase === phase), one = inside.length && highest(inside);
        if (!one) return;
        const row = make('tr', '', at('.phases tbody'));
        for (const [tag, text] of [['th', name], ['td', one.operator], ['td', exactly(one.total)], ['td', inBytes(one.total)]]) make(tag, text, row);
      });
      at('.step').replaceChildren(timeline(model, moments, state.device, Number(memory()), readout));
    }
    at('.ranks').hidden = !now.ranks.length;
    const size = number => now.of(model.sizes[number]);
    const ranks = now.ranks.map(([which, peak, parts]) => [named(which), size(peak), parts.map(([part, bytes]) => [part, size(bytes)])]);
    if (ranks.length) at('.ranks .drawn').replaceChildren(devicesDrawn(ranks, memory(), state.device));
    for (const name of ['B', 'n']) over(name);
  }

  // Puts values in place of symbols in the name of a device, which may have small sums: "stage pp - 1 of pp".
  function named(which) {
    const symbols = text => text.replace(/\b[a-z]+\b/g, name => (name in now.definitions ? String(now.symbols[name]) : name));
    return symbols(which.split(':')[0]).replace(/(\d+) - (\d+)/g, (_, a, b) => String(a - b));
  }

  // Draws the peak over B or n up to the double of the chosen one or beyond the largest that fits. The peak is assumed to grow with both.
  function over(name) {
    const other = name === 'B' ? 'n' : 'B', own = now.values[name];
    const peakAt = size => peakWith({ [name]: size }), UNITS = Array.from({ length: 12 }, (_, power) => 1n << BigInt(power));
    const unit = UNITS.find(one => peakAt(own + one) !== null || (own > one && peakAt(own - one) !== null)) || own; // a layout may divide n
    const fits = times => { const peak = peakAt(times * unit); return peak !== null && peak <= memory(); };
    const largest = fits(1n) ? largestThat(fits, 1n, 1n << 40n) * unit : null;
    let last = 2n * own;
    if (largest && largest < 64n * own && largest * 5n / 4n > last) last = largest * 5n / 4n;
    const points = [];
    for (let step = 1n; step <= 24n; step += 1n) {
      const size = (last * step) / 24n / unit * unit || unit, peak = peakAt(size);
      if (peak !== null && (!points.length || points.at(-1)[0] < Number(size))) points.push([Number(size), Number(peak)]);
    }
    const box = at(`[data-over=${name}]`), ring = largest && [Number(largest), Number(peakAt(largest))];
    note(name).textContent = largest
      ? `With ${other} = ${exactly(now.values[other])}, the largest ${name} that fits ${state.device} is ${exactly(largest)}.`
      : `With ${other} = ${exactly(now.values[other])}, not even ${name} = ${exactly(unit)} fits ${state.device}.`;
    box.replaceChildren(curve(name, points, [Number(own), Number(now.peak)], ring, state.device, Number(memory())));
    const details = make('details', '', box), table = make('table', '', details);
    details.prepend(make('summary', 'As a table'));
    make('caption', `Peak memory over ${name}`, table);
    for (const [size, bytes] of points) {
      const row = make('tr', '', table);
      make('th', exactly(size), row);
      make('td', inBytes(BigInt(bytes)), row);
    }
  }

  function serving() {
    at('.serving').hidden = !served;
    if (!served) return;
    const requests = { users: BigInt(state.users), prompt: BigInt(state.prompt), output: BigInt(state.output), memory: BigInt(onServed.get(state.memory)) };
    const solve = others => servedWith(served, model.sizes, evaluate, { ...requests, ...others });
    servingShown(served, requests, solve, state.memory, at);
  }

  const bars = [];
  function flopsRows() {
    model.figures.forEach(([group, name], number) => {
      if (group !== 'forward_flops') return;
      const row = make('tr', '', at('.forward tbody')), bar = make('td', '');
      make('th', name, row).scope = 'row';
      row.append(bar);
      bar.className = 'w';
      cell(number, make('td', '', row), true);
      bars.push([number, row, bar, make('td', '', row)]);
    });
  }

  function components() {
    const amounts = bars.map(([number]) => valueOf(number)), whole = amounts.reduce((sum, one) => sum + one, 0n);
    const largest = amounts.reduce((top, one) => (one > top ? one : top), 1n);
    bars.forEach(([, row, bar, shown], at) => {
      row.hidden = !amounts[at];
      bar.style.setProperty('--w', `${permille(amounts[at], largest) / 10}%`);
      shown.textContent = whole ? share(amounts[at], whole) : '';
    });
    note('forward').textContent = `${inFlops(whole)} for B · n = ${exactly(now.values.B * now.values.n)} tokens: all matrix products; a multiply-add is 2 FLOPs.`;
    const counted = valueOf(model.figures.findIndex(([group, name]) => group === 'train_flops_per_step' && name === state.convention));
    note('convention').replaceChildren(make('b', inFlops(counted)), ` a step, ${exactly(counted)}. ${model.conventions[state.convention]}`);
    const groups = model.weights.map(([css, name, parts]) => [css, name, parts.map(([part, size]) => [part, now.of(model.sizes[size])])]);
    at('.nested').replaceChildren(nested(groups));
    const details = make('details', '', at('.nested')), table = make('table', '', details);
    details.prepend(make('summary', 'As a table'));
    make('caption', 'Parameters by weight', table);
    for (const [, name, parts] of groups) {
      for (const [part, size] of parts) {
        const row = make('tr', '', table);
        make('th', `${name}: ${part}`, row);
        make('td', exactly(size), row);
        make('td', inCounts(size), row);
      }
    }
  }

  function follow() {
    const changed = changes(), why = refusal();
    section.classList.toggle('stale', why !== '');
    at('.refused').hidden = !why;
    at('.refused').textContent = why;
    for (const name in controls) controls[name].parentElement.classList.toggle('changed', changed.includes(name));
    at('[data-do=reset]').disabled = !changed.length;
    at('.command code').textContent = command();
    const query = new URLSearchParams(changed.map(name => [name, state[name]])).toString();
    if (query || location.hash.includes('=')) history.replaceState(null, '', query ? `#${query}` : location.pathname + location.search);
    if (why) {
      at('.verdict').textContent = 'No figures for these settings';
      for (const [, button, below] of cells) { button.textContent = '–'; button.disabled = true; below.textContent = ''; }
      return;
    }
    verdict();
    pictures();
    components();
    serving();
    for (const [number, button, below] of cells) {
      const missing = now.row[number] === null, value = missing ? 0n : valueOf(number), unit = model.figures[number][2];
      button.textContent = missing ? '–' : rounded(value, unit);
      button.disabled = missing;
      below.textContent = missing ? '' : exactly(value);
    }
  }

  function fill() { for (const name in controls) controls[name].value = state[name]; }

  function read() {
    const query = new URLSearchParams(location.hash.slice(1));
    if (shown && location.hash && ![...query.keys()].some(name => name in start)) return; // a link within the page
    shown = true;
    Object.assign(state, start);
    for (const [name, value] of query) {
      const choices = choicesOf(name);
      if (name in start && (!choices || choices.includes(value))) state[name] = value;
    }
    fill();
    follow();
  }

  async function copy(text, button) {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(at('.command code'));
      button.textContent = 'Press Ctrl+C';
    }
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  for (const name of Object.keys(start)) control(name);
  const fixed = Object.keys(LABELS).filter(name => !(name in start) && name in model.values);
  note('fixed').textContent = fixed.length ? `Not changed here, since more than sizes would: ${fixed.map(name => LABELS[name]).join(', ')}. ` : '';
  scenarios();
  tables();
  flopsRows();
  at('form').onsubmit = event => event.preventDefault();
  at('[data-do=reset]').onclick = () => { Object.assign(state, start); fill(); follow(); };
  at('[data-do=copy]').onclick = event => copy(command(), event.target);
  at('[data-do=yaml]').onclick = event => copy(yaml(), event.target);
  at('[data-do=link]').onclick = event => copy(location.href, event.target);
  at('[data-do=close]').onclick = () => at('dialog').close();
  addEventListener('hashchange', read);
  section.hidden = false;
  read();
})();
