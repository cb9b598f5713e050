// The client: starts `tilewright lsp`, and shows the texts of libraries, which come with the command.
'use strict';

const vscode = require('vscode');
const { LanguageClient, TransportKind } = require('vscode-languageclient/node');

let client;

async function start() {
  const settings = vscode.workspace.getConfiguration('tilewright');
  const server = { command: settings.get('path'), args: ['lsp'], transport: TransportKind.stdio };
  const options = { libraries: true };
  if (settings.get('arch')) {
    options.arch = settings.get('arch');
  }
  client = new LanguageClient('tilewright', 'Tilewright', server, {
    documentSelector: [{ language: 'tile' }, { language: 'task' }],
    initializationOptions: options,
  });
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(
      `Tilewright's language server does not start: ${error.message}. Set tilewright.path to the command.`,
    );
  }
}

async function restart() {
  if (client) {
    await client.stop();
  }
  await start();
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand('tilewright.restart', restart),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration('tilewright') && restart()),
    vscode.workspace.registerTextDocumentContentProvider('tilewright', {
      provideTextDocumentContent: (uri) => client.sendRequest('tilewright/text', { uri: uri.toString() }),
    }),
  );
  await start();
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
