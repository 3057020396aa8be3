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
</style>
</head>
<body>
<h1>Translate</h1>
<form id="form">
<textarea id="text" rows="6" aria-label="Text" autofocus></textarea>
<p>
<label id="directions" hidden>Direction <select id="direction"></select></label>
<label>Alternatives <input id="alternatives" type="number" min="0" max="9" value="0"></label>
<label>API key <input id="key" type="password" autocomplete="off"></label>
<button>Translate</button>
</p>
</form>
<div id="output" aria-live="polite"></div>
<div id="others"></div>
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
at('form').addEventListener('submit', async event => {
  event.preventDefault();
  const [source, target] = JSON.parse(at('direction').value || '["any", "any"]');
  at('output').className = '';
  at('others').textContent = '';
  try {
    const answer = await fetch('translate', {
      method: 'POST',
      headers: {'Content-Type': 'application/json'},
      body: JSON.stringify({q: at('text').value, source, target, api_key: at('key').value,
                            alternatives: Number(at('alternatives').value)})
    });
    const result = await answer.json();
    if (result.error)
      throw new Error(result.error);
    at('output').textContent = result.translatedText;
    at('others').textContent = (result.alternatives || []).join('\n\n');
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
