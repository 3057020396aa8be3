// The page with which one tries a server in a browser.
#include "serve/Page.h"

namespace xfc {

const char *const tryingPage = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Translate</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff; }
textarea { width: 100%; box-sizing: border-box; font: inherit; padding: .5em; }
label { margin-right: 1em; }
#output { white-space: pre-wrap; border-left: 3px solid #36c; padding: .25em 1em; margin: 1em 0; min-height: 1.5em; }
#others { color: #555; white-space: pre-wrap; }
.error { color: #b00; }
#maps { overflow-x: auto; }
#maps label { display: block; }
#maps table { border-collapse: collapse; margin: .5em 0 2em; }
#maps th { font-weight: normal; font-size: 13px; text-align: right; padding: 0 .4em; white-space: nowrap; }
#maps .column { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; vertical-align: top; padding: .4em 0; }
#maps td { width: 26px; min-width: 26px; height: 26px; border: 1px solid #ddd; }
</style>
</head>
<body>
<h1>Translate</h1>
<form id="form">
<textarea id="text" rows="6" aria-label="Text" autofocus></textarea>
<p>
<label id="directions" hidden>Direction <select id="direction"></select></label>
<label>Alternatives <input id="alternatives" type="number" min="0" max="9" value="0"></label>
<label><input id="attention" type="checkbox"> Attention</label>
<label>API key <input id="key" type="password" autocomplete="off"></label>
<button>Translate</button>
</p>
</form>
<div id="output" aria-live="polite"></div>
<div id="others"></div>
<div id="maps"></div>
<script>
const at = id => document.getElementById(id);
fetch('languages').then(answer => answer.json()).then(languages => {
  for (const language of languages)
    for (const target of language.targets) {
      const option = document.createElement('option');
      option.value = JSON.stringify([language.code, target]);
      option.textContent = language.code + ' to ' + target;
      at('direction').append(option);
      at('directions').hidden = false;
    }
});
const post = async (path, fields) => {
  const answer = await fetch(path, {
    method: 'POST',
    headers: {'Content-Type': 'application/json'},
    body: JSON.stringify({...fields, api_key: at('key').value})
  });
  const result = await answer.json();
  if (result.error)
    throw new Error(result.error);
  return result;
};
const add = (to, name, text) => {
  const one = document.createElement(name);
  one.textContent = text;
  to.append(one);
  return one;
};
// How each token of the translation attends to those of the source: the darker, the more.
const drawMap = (table, columns, {tokens, attention}) => {
  table.textContent = '';
  const head = add(table, 'tr', '');
  add(head, 'th', '');
  for (const column of columns)
    add(head, 'th', column).className = 'column';
  attention.forEach((weights, i) => {
    const row = add(table, 'tr', ''), name = i < tokens.length ? tokens[i] : '(end)';
    add(row, 'th', name);
    weights.forEach((weight, j) => {
      const cell = add(row, 'td', '');
      cell.style.background = `rgba(8, 48, 107, ${weight.toFixed(3)})`;
      cell.title = `${name} \u2190 ${columns[j]}: ${weight.toFixed(3)}`;
    });
  });
};
// The translations of each sentence, of which one is chosen, and its map.
const showMaps = async (q, source, target, alternatives) => {
  const fields = {q, document: true, source, target, alignments: 'soft', n_best: alternatives + 1};
  let result;
  try {
    result = await post('v1/translate', fields);
  } catch (error) {
    if (!error.message.includes('beam') || alternatives === 0)
      throw error;
    result = await post('v1/translate', {...fields, beam: alternatives + 1}); // as alternatives do
  }
  result.translations[0].sentences.forEach(({source_tokens, hypotheses}, sentence) => {
    const choices = document.createElement('div'), table = document.createElement('table');
    hypotheses.forEach((hypothesis, k) => {
      const label = add(choices, 'label', ' ' + hypothesis.text), choice = document.createElement('input');
      choice.type = 'radio';
      choice.name = 'sentence' + sentence;
      choice.checked = k === 0;
      choice.addEventListener('change', () => drawMap(table, source_tokens, hypothesis));
      label.prepend(choice);
    });
    if (hypotheses.length > 0)
      drawMap(table, source_tokens, hypotheses[0]);
    at('maps').append(choices, table);
  });
};
at('form').addEventListener('submit', async event => {
  event.preventDefault();
  const [source, target] = JSON.parse(at('direction').value || '["any", "any"]');
  const q = at('text').value, alternatives = Number(at('alternatives').value);
  at('output').className = '';
  at('others').textContent = at('maps').textContent = '';
  try {
    const result = await post('translate', {q, source, target, alternatives});
    at('output').textContent = result.translatedText;
    at('others').textContent = (result.alternatives || []).join('\n\n');
    if (at('attention').checked)
      await showMaps(q, source, target, alternatives);
  } catch (error) {
    at('output').className = 'error';
    at('output').textContent = error.message;
  }
});
</script>
</body>
</html>
)";

} // namespace xfc
