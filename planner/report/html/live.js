// The live section: inputs, figures that follow them, the fragment that holds the state.
(async () => {
  const section = document.querySelector('.live');
  if (!section || typeof DecompressionStream === 'undefined') return;
  const packed = Uint8Array.from(atob(section.dataset.model), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const model = JSON.parse(await new Response(stream).text());
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
    precision: 'Precision', recompute: 'Recomputation', optimizer: 'Optimizer', device: 'Device',
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
  const start = { ...Object.fromEntries(Object.keys(model.inputs).map(name => [name, model.values[name]])),
    ...Object.fromEntries(KINDS.map((kind, number) => [kind, model.chosen[number]])), device: model.device[0] || model.devices[0][0] };
  const state = { ...start }, controls = {}, evaluate = evaluator(model.helpers);
  let values, of, plan, shown = false;

  function control(name) {
    const label = make('label', '', at('.fields')), choices = name === 'device' ? [...devices.keys()] : model.choices[name];
    make('span', LABELS[name], label);
    const field = controls[name] = make(choices ? 'select' : 'input', '', label);
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
      Object.assign(state, start, sizes, Object.fromEntries(KINDS.map((kind, number) => [kind, chosen[number]])), { device: state.device });
      fill();
      follow();
    };
  }

  const changes = () => Object.keys(start).filter(name => state[name] !== start[name]);
  const quoted = word => (/^[\w.,/=:+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const command = () => ['planner run', quoted(model.spec), ...changes().filter(name => name !== 'device')
    .map(name => `--set ${quoted(`${model.inputs[name] || `training.${name}`}=${state[name]}`)}`)].join(' ');

  // Returns why there are no figures for the state; empty if there are.
  function refusal() {
    for (const name in model.inputs) if (!controls[name].validity.valid) return `${LABELS[name]} must be a positive integer.`;
    values = Object.fromEntries(Object.entries(model.values).map(([name, value]) => [name, BigInt(state[name] ?? value)]));
    of = evaluate(values);
    for (const name in model.derived) values[name] = of(model.derived[name]);
    of = evaluate(values);
    const holds = { '<': (a, b) => a < b, '>=': (a, b) => a >= b, '<=': (a, b) => a <= b, '==': (a, b) => a === b, '!=': (a, b) => a !== b };
    for (const [left, relation, right, message] of model.rules) if (!holds[relation](of(left), of(right))) return `${message}.`;
    const chosen = KINDS.map(kind => state[kind]);
    plan = model.plans[chosen.join(' ')];
    if (!plan) return `${chosen.join(', ')} cannot be combined.`;
    const applies = ([kind, left, right]) => (kind === 'in' ? right[Number(of(left)) - 1] === '1' : holds[kind](of(left), of(right)));
    return model.guards[chosen.slice(0, 2).join(' ')].every(applies) ? '' :
      'These sizes call for other kernels or operators than the formulas of this page have. The command below plans them.';
  }

  const valueOf = number => of(model.sizes[plan[number]]);
  const figure = name => model.figures.findIndex(([group, own]) => !group && own === name);

  function verdict() {
    const peak = valueOf(figure('peak_bytes')), most = BigInt(devices.get(state.device)) - BigInt(model.reserve), free = most - peak;
    at('.verdict').className = `verdict ${free < 0n ? 'exceeds' : 'fits'}`;
    at('.verdict').textContent = free < 0n
      ? `✕ Exceeds ${state.device} by ${inBytes(-free)}: peak ${inBytes(peak)}, memory ${inBytes(most)}`
      : `✓ Fits ${state.device} with ${inBytes(free)} free: peak ${inBytes(peak)}, memory ${inBytes(most)}`;
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

  function superscript(power) { return [...power].map(digit => '⁰¹²³⁴⁵⁶⁷⁸⁹'[digit]).join(''); }
  const MARKS = { ceil_div: ['⌈', ' / ', '⌉'], floor_divide: ['⌊', ' / ', '⌋'] };
  function written(text, name) {
    return text.replace(/(?!^)([+-])/g, ' $1 ').replace(/(@\d+|[A-Za-z_][\w.]*)(?:\^(\d+))?/g, (_, base, power) => {
      const [helper, ...sizes] = base[0] === '@' ? model.helpers[base.slice(1)] : [];
      const [open, between, close] = MARKS[helper] || [`${helper}(`, ', ', ')'];
      const shown = helper ? open + sizes.map(size => written(size, name)).join(between) + close : name(base);
      return shown + (power ? superscript(power) : '');
    }).replaceAll('*', '·');
  }

  function explain(number) {
    const [, name, unit, meaning] = model.figures[number], size = model.sizes[plan[number]], dialog = at('dialog');
    dialog.querySelector('h3').textContent = `${name} = ${exactly(valueOf(number))} ${unit}`;
    at('.meaning').textContent = meaning;
    at('.formula').textContent = written(size, base => base);
    at('.numbers').textContent = written(size, base => String(values[base]));
    dialog.showModal();
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
    for (const [number, button, below] of cells) {
      const missing = plan[number] === null, value = missing ? 0n : valueOf(number), unit = model.figures[number][2];
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
      const choices = name === 'device' ? [...devices.keys()] : model.choices[name];
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
  scenarios();
  tables();
  at('form').onsubmit = event => event.preventDefault();
  at('[data-do=reset]').onclick = () => { Object.assign(state, start); fill(); follow(); };
  at('[data-do=copy]').onclick = event => copy(command(), event.target);
  at('[data-do=link]').onclick = event => copy(location.href, event.target);
  at('[data-do=close]').onclick = () => at('dialog').close();
  addEventListener('hashchange', read);
  section.hidden = false;
  read();
})();
